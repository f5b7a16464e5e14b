/* launch_job.c -- a job from its options: defaults, the program, the signals that are passed on.   SPDX-License-Identifier: MIT */
#include "launch/job/launch_job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Of a source file; NULL: it is none. */
static const char *compiler_of(const char *name)
{
    return tutti__ends_in(name, ".cc") || tutti__ends_in(name, ".cpp") ? "c++"
           : tutti__ends_in(name, ".c")                                ? "cc"
                                                                       : NULL;
}

static void fail_not_executable(const char *name)
{
    const char *compiler = compiler_of(name);
    const int n = compiler ? (int)(strrchr(name, '.') - name) : 0;

    if (compiler)
        tutti__fail(TUTTI_ERR_IO,
                    "cannot run %s: it is a source file; compile it (%s %s $(pkg-config --cflags "
                    "--libs tutti) -o %.*s), and run %s%.*s",
                    name, compiler, name, n, name, strchr(name, '/') ? "" : "./", n, name);
    else
        tutti__fail(TUTTI_ERR_IO, "cannot run %s: it is not executable (chmod +x it)", name);
}

/* Searches PATH as a shell does. Returns 0, 126 or 127. */
static int find_program(char *path, size_t bytes, const char *name)
{
    const char *folders = strchr(name, '/') ? NULL : getenv("PATH"), *end;
    bool exists = false;
    struct stat info;

    for (const char *p = folders ? folders : ""; p; p = end) {
        end = strchr(p, ':');
        if (folders && p != end && *p)
            snprintf(path, bytes, "%.*s/%s", end ? (int)(end - p) : (int)strlen(p), p, name);
        else
            snprintf(path, bytes, "%s", name);
        if (end)
            end++;
        if (stat(path, &info) != 0 || (folders && S_ISDIR(info.st_mode)))
            continue;
        exists = true;
        if (S_ISREG(info.st_mode) && access(path, X_OK) == 0)
            return 0;
    }
    if (!exists && folders && compiler_of(name)) /* not a program that PATH may have */
        exists = stat(name, &info) == 0;
    if (exists && S_ISDIR(info.st_mode))
        tutti__fail(TUTTI_ERR_IO, "cannot run %s: it is a folder", name);
    else if (exists)
        fail_not_executable(name);
    else
        tutti__fail(TUTTI_ERR_NOT_FOUND, "cannot find %s%s", name,
                    folders ? " in PATH; for a file in this folder write ./ before its name" : "");
    return exists ? 126 : 127;
}

/* The signals of opts; by default TERM, INT, HUP, QUIT, and USR1, Slurm's usual warning. HUP or TERM stay ignored if our parent
 * ignores them (nohup); INT and QUIT do not, because shell scripts make all background jobs ignore them. */
static void choose_signals(tutti__job *job)
{
    static const int usual[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, 0};
    const int *wanted = job->opts.signals ? job->opts.signals : usual;
    struct sigaction action;
    int n = 0;

    for (int i = 0; wanted[i] && n < NSIG - 1; i++) {
        bool may_stay = !job->opts.signals && (wanted[i] == SIGHUP || wanted[i] == SIGTERM);

        if (!may_stay || sigaction(wanted[i], NULL, &action) != 0 || action.sa_handler != SIG_IGN)
            job->signals[n++] = wanted[i];
    }
    job->signals[n] = 0;
}

static void choose_threads(tutti__job *job)
{
    const char *threads = getenv("OMP_NUM_THREADS");
    int cores = tutti__cores() / job->opts.n;

    snprintf(job->omp_text, sizeof job->omp_text, "%d", cores > 0 ? cores : 1);
    job->omp_threads = threads && *threads ? threads : job->omp_text;
}

static bool merges_output(const tutti__nodes *nodes)
{
    const bool in_step = getenv("SLURM_STEP_ID") && getenv("SLURM_PROCID");

    return nodes->max > 1 && nodes->merges >= 0 &&
           (nodes->merges > 0 || (in_step && nodes->max > TUTTI__FEW_NODES));
}

int tutti__job_init(tutti__job *job, const tutti__launch_opts *opts)
{
    char now[64];

    *job = (tutti__job){.opts = *opts, .flip_counter = -1};
    if (opts->n < 1 || !opts->argv || !opts->argv[0]) {
        tutti__fail(TUTTI_ERR_ARG, "%d workers: expected at least 1 and a program", opts->n);
        return 2;
    }
    if (!opts->title)
        job->opts.title = "tutti run";
    if (!opts->role)
        job->opts.role = "default";
    if (!opts->master_addr)
        job->opts.master_addr = "127.0.0.1";
    if (opts->shutdown_timeout_s == 0)
        job->opts.shutdown_timeout_s = 30;
    if (opts->nodes.max < 1)
        job->opts.nodes.min = job->opts.nodes.max = 1;
    job->merges = merges_output(&job->opts.nodes);
    gethostname(job->host, sizeof job->host - 1);
    choose_threads(job);
    if (opts->id)
        snprintf(job->id, sizeof job->id, "%s", opts->id);
    else {
        tutti__local_time(tutti__wall_seconds(), "%Y%m%d-%H%M%S", now);
        snprintf(job->id, sizeof job->id, "%s-%d", now, (int)getpid());
    }
    choose_signals(job);
    if (opts->script && access(opts->script, R_OK) != 0) {
        int error = errno;

        tutti__fail(TUTTI_ERR_NOT_FOUND, "cannot %s %s: %s", error == ENOENT ? "find" : "read",
                    opts->script, strerror(error));
        return error == ENOENT ? 127 : 126;
    }
    if (opts->program)
        return find_program(job->program, sizeof job->program, opts->program);
    if (!tutti__executable(job->program, sizeof job->program)) {
        tutti__fail(TUTTI_ERR_IO,
                    "cannot read /proc/self/exe, the executable of this process: %s; is /proc "
                    "mounted (mount -t proc proc /proc)?",
                    strerror(errno));
        return 1;
    }
    return 0;
}
