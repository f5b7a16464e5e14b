/* mpi_load.c -- finds the module of the MPI that this job runs under, and starts and ends MPI.   SPDX-License-Identifier: MIT
 *
 * MPI starts and ends once a process, independently of groups. It is ended when the program exits, if we have started it.
 * MPI_Finalize waits for all ranks: a rank that exits because of a failure must not wait for others that fail too, so it
 * exits without, and the launcher then ends the job. */
#include "base/thread.h"
#include "comm/backend/backend.h"
#include "comm/backend/mpi/mpi.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct process {
    pthread_mutex_t lock;
    const tutti__mpi *mpi; /* NULL: not started */
    tutti__mpi_world world;
    bool stuck; /* MPI_Init has not returned */
    pid_t pid;
    _Atomic int open;        /* groups */
    _Atomic bool ended_well; /* the last group that ended, if any, had not failed */
} process = {.lock = PTHREAD_MUTEX_INITIALIZER, .ended_well = true};

/* ---- Which module ----------------------------------------------------------------------------------------- */

static bool find_module(const char *kind, char *path, size_t capacity)
{
    char name[96];

    snprintf(name, sizeof name, "libtutti_mpi_%.60s.so", kind);
    return tutti__module_find(name, path, capacity);
}

size_t tutti__mpi_files(tutti__mpi_file *files, size_t n)
{
    static const char *const kinds[] = {"mpich", "openmpi"};
    size_t found = 0;

    for (size_t i = 0; i < TUTTI__COUNT_OF(kinds) && found < n; i++)
        if (find_module(kinds[i], files[found].path, sizeof files[found].path))
            snprintf(files[found++].kind, sizeof files[0].kind, "%s", kinds[i]);
    return found;
}

/* How many kinds of module there are; `names` lists them, "mpich, openmpi". */
static int list_modules(char *names, size_t capacity)
{
    tutti__mpi_file files[4];
    size_t n = tutti__mpi_files(files, TUTTI__COUNT_OF(files)), used = 0;

    names[0] = '\0';
    for (size_t i = 0; i < n && used < capacity; i++)
        used +=
            (size_t)snprintf(names + used, capacity - used, "%s%s", i ? ", " : "", files[i].kind);
    return (int)n;
}

static bool is_set(const char *name)
{
    const char *text = getenv(name);

    return text && *text;
}

/* The MPI that this process has already loaded, or else that of its launcher; NULL: unknown. */
static const char *expected_module(void)
{
    static const char *const hydra[] = {"PMI_RANK", "PMI_SIZE", "PMI_FD", "HYDI_CONTROL_FD"};
    void *symbol = dlsym(RTLD_DEFAULT, "MPI_Get_library_version");
    int (*version)(char *, int *);
    char text[8192] = "";
    int length = 0;

    memcpy(&version, &symbol, sizeof version);
    if (version && version(text, &length) == 0)
        return strstr(text, "Open MPI") ? "openmpi" : "mpich";
    if (is_set("OMPI_COMM_WORLD_SIZE"))
        return "openmpi";
    for (size_t i = 0; i < TUTTI__COUNT_OF(hydra); i++)
        if (is_set(hydra[i]))
            return "mpich";
    return is_set("PMIX_RANK") ? "openmpi" : NULL;
}

static tutti_status choose_module(char *path, size_t capacity)
{
    const char *asked = tutti__env_text(TUTTI__ENV_MPI), *expected = expected_module();
    char names[64];
    int n;

    if (strchr(asked, '/')) {
        snprintf(path, capacity, "%s", asked);
        return TUTTI_OK;
    }
    n = list_modules(names, sizeof names);
    if (*asked && find_module(asked, path, capacity))
        return TUTTI_OK;
    if (*asked && n > 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "TUTTI_MPI is \"%.60s\", but there is no libtutti_mpi_%.60s.so; there "
                           "is %s; a path works too",
                           asked, asked, names);
    if (n == 0 && !find_module("openmpi", path, capacity))
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "backend mpi: there is no module libtutti_mpi_*.so in %s; build Tutti "
                           "where an MPI is installed (libopenmpi-dev openmpi-bin, or libmpich-dev "
                           "mpich), name a module's path in TUTTI_MPI, or use backend native",
                           path);
    if (expected && find_module(expected, path, capacity))
        return TUTTI_OK;
    if (n == 1 && find_module(names, path, capacity))
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_ARG,
                       "backend mpi: there are modules for %s, and nothing in the environment says "
                       "which MPI this job runs under: start it with mpirun, or srun --mpi=pmix or "
                       "--mpi=pmi2, or set TUTTI_MPI",
                       names);
}

/* RTLD_GLOBAL, because plug-ins of some MPIs look up their library's symbols globally. */
static tutti_status load_module(const char *path, const tutti__mpi **mpi_p)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    const tutti__mpi *mpi = library ? dlsym(library, TUTTI__MPI_SYMBOL) : NULL;

    if (!library)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "backend mpi: the module cannot be loaded: %s; is that MPI installed "
                           "here, and does LD_LIBRARY_PATH name it?",
                           dlerror());
    if (!mpi || mpi->table != TUTTI__MPI_TABLE || strcmp(mpi->version, TUTTI_VERSION) != 0) {
        (void)tutti__fail(TUTTI_ERR_UNSUPPORTED,
                          "backend mpi: %s is not a module of Tutti %s, but of %s", path,
                          TUTTI_VERSION, mpi ? mpi->version : "something else");
        dlclose(library);
        return TUTTI_ERR_UNSUPPORTED;
    }
    *mpi_p = mpi;
    return TUTTI_OK;
}

/* ---- Starting ------------------------------------------------------------------------------------------------ */

typedef struct starter {
    const tutti__mpi *mpi;
    tutti__mpi_world world;
    int error;
} starter;

static void *starter_main(void *arg)
{
    starter *s = arg;

    s->error = s->mpi->start(&s->world);
    return NULL;
}

/* MPI_Init waits for all ranks without a limit: it runs in its own thread, which is abandoned if it takes too long. The
 * thread inherits our signal mask, since MPI may start helper threads from it. */
static tutti_status run_starter(starter *s, int timeout_ms)
{
    const double until = tutti__now_ms() + timeout_ms;
    pthread_t thread;
    int error = pthread_create(&thread, NULL, starter_main, s);

    if (error)
        return tutti__fail_errno(error, "cannot start a thread for MPI");
    if (!tutti__thread_join_by(thread, until)) {
        pthread_detach(thread);
        process.stuck = true;
        return tutti__fail(TUTTI_ERR_TIMEOUT,
                           "MPI has not started within %.3g s: MPI_Init waits for all ranks, of "
                           "which one was not started, has died, or is held up before it",
                           timeout_ms / 1e3);
    }
    if (s->error)
        return tutti__fail(TUTTI_ERR_INTERNAL, "backend mpi (%s): %s", s->world.version,
                           s->world.error);
    if (!s->world.multiple)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "backend mpi: %s was started %s a thread level below "
                           "MPI_THREAD_MULTIPLE, but collectives run in a separate thread while "
                           "the program continues; %s",
                           s->world.version, s->world.ours ? "and gives only" : "by the program at",
                           s->world.ours ? "use an MPI that has it"
                                         : "ask MPI_Init_thread for MPI_THREAD_MULTIPLE");
    return TUTTI_OK;
}

static void at_exit(void)
{
    if (getpid() != process.pid) /* a child forked by the program */
        return;
    if (atomic_load(&process.open) > 0 || !atomic_load(&process.ended_well))
        return;
    process.mpi->finish();
}

static tutti_status start(int timeout_ms)
{
    char path[1088];
    const tutti__mpi *mpi = NULL;
    starter *s;
    tutti_status status;

    if (process.stuck)
        return tutti__fail(TUTTI_ERR_STATE, "MPI_Init has not come back from the first try");
    TUTTI_TRY(choose_module(path, sizeof path));
    TUTTI_TRY(load_module(path, &mpi));
    s = tutti__alloc(sizeof *s);
    if (!s)
        return TUTTI_ERR_MEMORY;
    s->mpi = mpi;
    status = run_starter(s, timeout_ms);
    if (status == TUTTI_OK) {
        process.mpi = mpi;
        process.world = s->world;
        process.pid = getpid();
        if (s->world.ours)
            atexit(at_exit);
        tutti_log(TUTTI_LOG_DEBUG, "comm", "%s, module %s", s->world.version, path);
    }
    if (!process.stuck) /* else the thread still uses it */
        free(s);
    return status;
}

tutti_status tutti__mpi_start(int timeout_ms, int *rank_p, int *size_p)
{
    tutti_status status = TUTTI_OK;

    pthread_mutex_lock(&process.lock);
    if (!process.mpi)
        status = start(timeout_ms);
    *rank_p = process.world.rank;
    *size_p = process.world.size;
    pthread_mutex_unlock(&process.lock);
    return status;
}

const char *tutti__mpi_version(void)
{
    return process.mpi ? process.world.version : "MPI";
}

const tutti__mpi *tutti__mpi_loaded(void)
{
    return process.mpi;
}

tutti__mpi_comm tutti__mpi_world_comm(void)
{
    return process.world.comm;
}

void tutti__mpi_note_open(void)
{
    atomic_fetch_add(&process.open, 1);
}

void tutti__mpi_note_closed(bool failed)
{
    atomic_store(&process.ended_well, !failed);
    atomic_fetch_sub(&process.open, 1);
}
