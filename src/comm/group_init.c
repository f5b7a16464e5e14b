/* group_init.c -- joining the group described by the environment or the caller.   SPDX-License-Identifier: MIT */
#include "comm/backend/backend.h"
#include "comm/bootstrap/launcher_environment.h"
#include "comm/bootstrap/process.h"
#include "comm/bootstrap/store/store.h"
#include "comm/engine/planned_engine.h"
#include "comm/group_join.h"

#include <stdio.h>
#include <string.h>

enum { MIN_HEARTBEAT_MS = 50 };

/* Makes rank 0's store, or opens a second handle to it if an earlier group of this process hosts it. */
static tutti_status host_store(tutti_store **store_p, const tutti__env_group *env)
{
    char self[128], other[128], message[1024];
    size_t bytes = sizeof other;
    tutti_status status = tutti_store_tcp_serve(store_p, env->master_addr, env->master_port);

    tutti__process_text(self, sizeof self);
    if (status == TUTTI_OK && env->local_world_size < env->world_size &&
        (*store_p)->address.length > 0 && tutti__address_is_loopback(&(*store_p)->address))
        tutti_log(TUTTI_LOG_WARN, "comm",
                  "MASTER_ADDR %s is a loopback address on rank 0's host, which ranks on other "
                  "hosts cannot reach; if there are any, "
                  "give the address of a network interface",
                  env->master_addr);
    if (status == TUTTI_OK)
        return tutti_store_set(*store_p, "server/process", self, strlen(self));
    if (status != TUTTI_ERR_IO)
        return status;
    snprintf(message, sizeof message, "%s", tutti_last_error());
    if (tutti_store_tcp_connect(store_p, env->master_addr, env->master_port, 2000) == TUTTI_OK) {
        if (tutti_store_get(*store_p, "server/process", other, &bytes, 0) == TUTTI_OK &&
            bytes == strlen(self) && memcmp(self, other, bytes) == 0)
            return TUTTI_OK;
        tutti_store_free(*store_p);
        *store_p = NULL;
    }
    return tutti__fail_again(status, message);
}

/* MPI's ranks count; the environment must not contradict them. */
static tutti_status check_mpi_ranks(const tutti__env_group *env, int rank, int size)
{
    if (env->world_size > 1 && size == 1)
        return tutti__fail(TUTTI_ERR_ARG,
                           "backend mpi: %s started rank %d of %d, but %s believes that this "
                           "process is alone: it is not the MPI of that launcher; use its mpirun, "
                           "or set TUTTI_MPI to openmpi, mpich or a module's path; with srun, "
                           "--mpi=pmix or --mpi=pmi2 (srun --mpi=list)",
                           env->source, env->rank, env->world_size, tutti__mpi_version());
    if (strcmp(env->source, "none") != 0 && (env->rank != rank || env->world_size != size))
        return tutti__fail(TUTTI_ERR_ARG,
                           "backend mpi: %s says rank %d of %d, but %s says rank %d of %d; unset "
                           "RANK and WORLD_SIZE, or set them to MPI's",
                           env->source, env->rank, env->world_size, tutti__mpi_version(), rank,
                           size);
    return TUTTI_OK;
}

static tutti_status init_over_mpi(tutti_group **group_p, const tutti__group_member *asked,
                                  const tutti__env_group *env)
{
    tutti__group_member member = *asked;

    if (env->world_size > 1 && !tutti__env_by_mpi_launcher())
        return tutti__fail(TUTTI_ERR_ARG,
                           "backend mpi: rank %d of %d was not started by mpirun or srun, so MPI "
                           "knows nothing of the others: start it with `mpirun -n %d PROGRAM`",
                           env->rank, env->world_size, env->world_size);
    TUTTI_TRY(tutti__mpi_start(member.timeout_ms, &member.rank, &member.size));
    TUTTI_TRY(check_mpi_ranks(env, member.rank, member.size));
    member.backend = TUTTI_BACKEND_MPI;
    member.world_rank = member.rank;
    member.attempt = env->attempt;
    if (env->world_size > 1) {
        member.local_rank = env->local_rank;
        member.local_size = env->local_world_size;
    }
    return tutti__join(group_p, &member, NULL);
}

/* AUTO becomes MPI, if available, when nothing says where the store is, as under mpirun on several hosts. */
static tutti_status choose_backend(tutti_backend *backend, tutti__env_group *env, int timeout_ms)
{
    char message[1024];
    int rank, size;

    if (*backend == TUTTI_BACKEND_MPI || tutti__env_group_read_master(env) == TUTTI_OK)
        return TUTTI_OK;
    snprintf(message, sizeof message, "%s", tutti_last_error());
    if (*backend != TUTTI_BACKEND_AUTO || !tutti__env_by_mpi_launcher())
        return TUTTI_ERR_ARG;
    if (tutti__mpi_start(timeout_ms, &rank, &size) != TUTTI_OK)
        return tutti__fail(TUTTI_ERR_ARG, "%s; or let MPI carry the group, but: %s", message,
                           tutti_last_error());
    *backend = TUTTI_BACKEND_MPI;
    return TUTTI_OK;
}

static tutti_status init_from_environment(tutti_group **group_p, const tutti__group_member *asked,
                                          tutti_backend backend)
{
    tutti__env_group env;
    tutti__group_member member = *asked;
    double deadline = tutti__now_ms() + member.timeout_ms;
    bool again = false;
    tutti_status status;

    TUTTI_TRY(tutti__env_group_read_ranks(&env));
    TUTTI_TRY(choose_backend(&backend, &env, member.timeout_ms));
    if (backend == TUTTI_BACKEND_MPI)
        return init_over_mpi(group_p, &member, &env);
    member.rank = env.rank;
    member.size = env.world_size;
    member.local_rank = env.local_rank;
    member.local_size = env.local_world_size;
    member.world_rank = env.rank;
    member.attempt = env.attempt;
    member.launched = env.hosted && !*env.store_file;
    snprintf(member.base, sizeof member.base, "attempt-%d", env.attempt);
    if (member.size == 1)
        return tutti__join(group_p, &member, NULL);
    do {
        tutti_store *store = NULL;
        double left = deadline - tutti__now_ms();

        if (*env.store_file)
            status = tutti_store_file_open(&store, env.store_file);
        else if (env.rank == 0 && !env.hosted)
            status = host_store(&store, &env);
        else
            status = tutti_store_tcp_connect(&store, env.master_addr, env.master_port,
                                             left > 0 ? (int)left : 0);
        if (status == TUTTI_OK)
            status = tutti__join(group_p, &member, store);
        /* If this was the last group's store, which rank 0 was just closing, the next one will follow. */
        again = status == TUTTI_ERR_IO && store && env.rank != 0 && !env.hosted && store->lost;
        tutti_store_free(store);
    } while (again && tutti__now_ms() < deadline);
    return status;
}

/* *ms_p: milliseconds; 0: off. */
static tutti_status read_heartbeat(int given_ms, int *ms_p)
{
    const char *text = tutti__env_text(TUTTI__ENV_HEARTBEAT_S);
    double seconds;

    if (!tutti__parse_double(text, &seconds) ||
        !(seconds == 0 || (seconds * 1e3 >= MIN_HEARTBEAT_MS && seconds <= 1e6)))
        return tutti__fail(TUTTI_ERR_ARG,
                           "TUTTI_HEARTBEAT_S is \"%.40s\", expected seconds from %g to 1e6, or 0 "
                           "for no heartbeat",
                           text, MIN_HEARTBEAT_MS / 1e3);
    if (given_ms < -1 || (given_ms > 0 && given_ms < MIN_HEARTBEAT_MS))
        return tutti__fail(TUTTI_ERR_ARG,
                           "heartbeat_ms is %d, expected at least %d, or -1 for no heartbeat",
                           given_ms, MIN_HEARTBEAT_MS);
    *ms_p = given_ms < 0 ? 0 : given_ms > 0 ? given_ms : (int)(seconds * 1e3 + 0.5);
    return TUTTI_OK;
}

static const char *const backend_names[] = {"auto", "native", "mpi", "nccl"};

bool tutti__backend_parse(const char *text, tutti_backend *backend_p)
{
    for (size_t i = 0; i < TUTTI__COUNT_OF(backend_names); i++)
        if (strcmp(text, backend_names[i]) == 0) {
            *backend_p = (tutti_backend)i;
            return true;
        }
    return false;
}

/* The given backend, or else that of TUTTI_BACKEND. */
static tutti_status read_backend(tutti_backend *backend)
{
    size_t choice;

    if (*backend == TUTTI_BACKEND_AUTO) {
        TUTTI_TRY(tutti__env_choice(TUTTI__ENV_BACKEND, backend_names,
                                    TUTTI__COUNT_OF(backend_names), &choice));
        *backend = (tutti_backend)choice;
    }
    if ((unsigned)*backend > TUTTI_BACKEND_NCCL)
        return tutti__fail(TUTTI_ERR_ARG, "backend %d is unknown", (int)*backend);
    return TUTTI_OK;
}

/* Of a group that meets in a store. */
static tutti_status check_ranks(const tutti__group_member *member, tutti_backend backend)
{
    if (backend == TUTTI_BACKEND_MPI)
        return tutti__fail(TUTTI_ERR_ARG,
                           "group \"%s\": backend mpi takes its ranks from MPI, not from a store; "
                           "leave opts.store NULL",
                           member->name);
    if (member->size > TUTTI__MAX_RANKS)
        return tutti__fail(TUTTI_ERR_ARG, "group \"%s\": world_size is %d, at most %d ranks",
                           member->name, member->size, TUTTI__MAX_RANKS);
    if (member->size < 1 || member->rank < 0 || member->rank >= member->size)
        return tutti__fail(TUTTI_ERR_ARG,
                           "group \"%s\": rank %d of %d, expected a rank from 0 to world_size - 1",
                           member->name, member->rank, member->size);
    return TUTTI_OK;
}

tutti_status tutti__group_init(tutti_group **group_p, const tutti_group_opts *given,
                               const tutti__tuning *tuning)
{
    const tutti_group_opts opts = given ? *given : (tutti_group_opts){0};
    const char *name = opts.name ? opts.name : "world";
    tutti__group_member member = {.rank = opts.rank,
                                  .world_rank = opts.rank,
                                  .size = opts.world_size,
                                  .local_rank = opts.local_rank,
                                  .local_size = opts.local_world_size,
                                  .timeout_ms = opts.timeout_ms,
                                  .transport = opts.transport,
                                  .tuning = tuning ? *tuning : (tutti__tuning){0}};
    static const char *const transports[] = {"auto", "tcp"};
    size_t transport;
    tutti_backend backend = opts.backend;
    long seconds;

    *group_p = NULL;
    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_group_opts, given));
    TUTTI_TRY(tutti__log_check());
    if (!*name || strlen(name) >= sizeof member.name)
        return tutti__fail(TUTTI_ERR_ARG,
                           "group name \"%.40s\" has %zu characters, expected 1 to %zu", name,
                           strlen(name), sizeof member.name - 1);
    snprintf(member.name, sizeof member.name, "%s", name);
    if (opts.timeout_ms < 0)
        return tutti__fail(TUTTI_ERR_ARG, "group \"%s\": timeout_ms is %d, expected more than 0",
                           name, opts.timeout_ms);
    TUTTI_TRY(tutti__env_int(TUTTI__ENV_TIMEOUT_S, 1, 2000000, &seconds));
    TUTTI_TRY(read_heartbeat(opts.heartbeat_ms, &member.heartbeat_ms));
    if (opts.timeout_ms == 0)
        member.timeout_ms = (int)seconds * 1000;
    TUTTI_TRY(tutti__env_choice(TUTTI__ENV_TRANSPORT, transports, TUTTI__COUNT_OF(transports),
                                &transport));
    if (transport == 1)
        member.transport = TUTTI_TRANSPORT_TCP;
    TUTTI_TRY(read_backend(&backend));
    if ((unsigned)opts.transport > TUTTI_TRANSPORT_TCP)
        return tutti__fail(TUTTI_ERR_ARG, "group \"%s\": transport %d is unknown", name,
                           (int)opts.transport);
    if (!opts.store && (opts.rank != 0 || opts.world_size != 0))
        return tutti__fail(TUTTI_ERR_ARG,
                           "group \"%s\": opts set rank %d of %d but no store where ranks can "
                           "meet; set a store too, or neither to use the environment's",
                           name, opts.rank, opts.world_size);
    member.backend = backend == TUTTI_BACKEND_MPI ? TUTTI_BACKEND_NATIVE : backend;
    if (!opts.store)
        return init_from_environment(group_p, &member, backend);
    TUTTI_TRY(check_ranks(&member, opts.backend));
    return tutti__join(group_p, &member, opts.store);
}

tutti_status tutti_group_init(tutti_group **group_p, const tutti_group_opts *opts)
{
    tutti_status status = tutti__group_init(group_p, opts, NULL);

    if (status == TUTTI_ERR_ARG) /* most programs only exit now */
        tutti__error_file_write_usage(true, tutti_last_error());
    else if (status != TUTTI_OK)
        tutti__error_file_write(tutti_status_scope(status) != TUTTI_SCOPE_GROUP,
                                tutti_last_error());
    return status;
}

tutti_status tutti__group_plan(tutti_group **group_p, int rank, int size, int local_size)
{
    return tutti__join(group_p,
                       &(tutti__group_member){.name = "plan",
                                              .rank = rank,
                                              .world_rank = rank,
                                              .size = size,
                                              .local_size = local_size,
                                              .timeout_ms = 60000,
                                              .backend = TUTTI_BACKEND_NATIVE,
                                              .planned = true},
                       NULL);
}

bool tutti__group_is_planned(const tutti_group *group)
{
    return group && strcmp(group->engine->name, "planned") == 0;
}

tutti__planned_calls *tutti__group_planned_calls(tutti_group *group)
{
    return tutti__engine_planned_calls(group->engine);
}
