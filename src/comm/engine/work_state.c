/* work_state.c -- when an asynchronous call is done: who sleeps until then, what is called, who frees it.
 * SPDX-License-Identifier: MIT */
#include "comm/engine/queue_state.h"

#include "base/thread.h"

#include <stdlib.h>

void tutti__work_free(tutti_work *work)
{
    free(work->request.message);
    free(work->message);
    free(work);
}

void tutti__work_let_go(tutti_work *work)
{
    if (atomic_fetch_sub(&work->references, 1) == 1)
        tutti__work_free(work);
}

void tutti__work_call_back(tutti_work *work)
{
    work->on_done(work->on_done_arg);
    tutti__work_let_go(work);
}

void tutti__work_set_done(tutti_work *work)
{
    const uint32_t before = atomic_exchange(&work->state, TUTTI__DONE);

    if (before & TUTTI__AWAITED)
        tutti__futex_wake(&work->state);
    if (before & TUTTI__WATCHED)
        tutti__work_call_back(work);
    tutti__work_let_go(work);
}

bool tutti__work_sleep(tutti_work *work, double deadline)
{
    double left = -1;

    for (;;) {
        uint32_t state = atomic_load(&work->state);

        if (state == TUTTI__DONE)
            return true;
        if (deadline > 0 && (left = deadline - tutti__now_ms()) <= 0)
            return false;
        if ((state & TUTTI__AWAITED) ||
            atomic_compare_exchange_strong(&work->state, &state, state | TUTTI__AWAITED))
            tutti__futex_wait(&work->state, state | TUTTI__AWAITED, left);
    }
}

tutti_status tutti__work_status(const tutti_work *work)
{
    tutti_status status = work->is_p2p ? work->request.status : work->status;
    const char *message = work->is_p2p ? work->request.message : work->message;

    return status == TUTTI_OK ? TUTTI_OK : tutti__fail_again(status, message ? message : "");
}
