/* machine.c -- what this machine supports, before any group is made.   SPDX-License-Identifier: MIT */
#include "comm/backend/backend.h"
#include "comm/bootstrap/socket.h"
#include "comm/comm.h"
#include "comm/transport/shared_memory/shm.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

bool tutti__can_share_memory(int ranks, char *why, size_t capacity)
{
    tutti__comm *comm = tutti__alloc(sizeof *comm);
    bool can = false;

    if (!comm) {
        snprintf(why, capacity, "%s", tutti_last_error());
        return false;
    }
    comm->size = ranks;
    can = tutti__shm_probe(comm, why, capacity);
    free(comm);
    return can;
}

tutti_status tutti__chosen_address(char *text, size_t capacity)
{
    const char *interfaces = tutti__env_text(TUTTI__ENV_SOCKET_IFNAME);
    tutti__address address = {0};

    *text = '\0';
    if (!*interfaces)
        return TUTTI_OK;
    TUTTI_TRY(tutti__interface_address(&address, interfaces, 0));
    tutti__address_host_text(&address, text, capacity);
    return TUTTI_OK;
}

size_t tutti__try_mpi_modules(void (*calls)(void *user, const char *kind, const char *problem),
                              void *user)
{
    tutti__mpi_file files[4];
    size_t n = tutti__mpi_files(files, TUTTI__COUNT_OF(files));

    for (size_t i = 0; i < n; i++) {
        void *module = dlopen(files[i].path, RTLD_NOW | RTLD_LOCAL);

        calls(user, files[i].kind, module ? NULL : dlerror());
    }
    return n;
}
