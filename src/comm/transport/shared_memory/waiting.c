/* waiting.c -- how long a rank polls before it sleeps at a barrier, and waking all that sleep.   SPDX-License-Identifier: MIT */
#include "comm/transport/shared_memory/shm.h"

#include "base/thread.h"

enum { LOOKS = 64, YIELDS = 32 };

void tutti__shm_wake_all(tutti__shm *shm)
{
    for (size_t i = 0; i < shm->n_beds; i++) {
        tutti__shm_node *bed = &shm->nodes[i];

        if (atomic_load(&bed->sleepers) == 0)
            continue;
        atomic_fetch_add(&bed->futex, 1);
        tutti__futex_wake(&bed->futex);
    }
}

void tutti__shm_set_patience(tutti__shm *shm, bool crowded)
{
    int spin = shm->comm->tuning.spin;

    /* Many ranks on few cores would come back from yielding often before the last has had its turn: each takes a core from
     * those that are still on their way. */
    shm->yields = spin > 0 ? spin : spin < 0 || shm->crowded ? 0 : YIELDS;
    shm->looks = crowded ? 0 : LOOKS;
}
