/* guard.c -- finds memory and computations that went wrong silently.   SPDX-License-Identifier: MIT
 *
 *     step s: ... update | replicas compared, checksums taken || step s + 1: forward, backward | checksums compared | update ...
 *
 * Replicas have the same bits after each update, so one with others is wrong. Between two updates nothing writes parameters and
 * optimizer state, so what has changed there is faulty memory: that is found on a rank alone, also if it is the only one, and before
 * anything of it is in an update. docs/guard.md */
#include "comm/bootstrap/launcher_environment.h"
#include "elastic/settings.h"
#include "train/run/run.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BUDGET 0.005 /* of a step's time, by default */

/* ---- Cost ---- */

static double seconds_since(uint64_t begin_ns)
{
    return (double)(tutti__now_ns() - begin_ns) * 1e-9;
}

/* Of this thread, so that waiting for other ranks does not count. */
static double cpu_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void tutti__guard_count_step(tutti__train_run *run)
{
    tutti__guard *g = &run->guard;

    if (g->steps++ > 0)
        g->step_seconds += run->step_seconds;
}

/* After how many steps to look again, so that it takes this rank no more than its budget. */
static int64_t interval(const tutti__train_run *run)
{
    const tutti__guard *g = &run->guard;
    const double step = g->steps > 1 ? g->step_seconds / (double)(g->steps - 1) : 0;
    const double n =
        step > 0
            ? ceil((g->check_seconds + g->compare_seconds + g->memory_seconds) / (BUDGET * step))
            : 2;

    return n < 1 ? 1 : n > 1e9 ? 1000000000 : (int64_t)n;
}

/* ---- What was found ---- */

/* Whether it is of this host, and of another event: two ranks that differ are both named for one. */
static bool was_before(const tutti__train_run *run, const json_t *entry, const char *host)
{
    const char *its_host = json_string_value(json_object_get(entry, "host"));
    const bool same_step =
        json_integer_value(json_object_get(entry, "step")) == (json_int_t)run->position.at.step;
    const bool same_rank = json_integer_value(json_object_get(entry, "rank")) == run->session.rank;

    return its_host && strcmp(its_host, host) == 0 && (same_rank || !same_step);
}

/* The line of this process; NULL: no memory. */
static json_t *entry_of(const tutti__train_run *run, const char *what, const char *host)
{
    tutti__env_group env = {.rank = run->session.rank};

    (void)!tutti__env_group_read_ranks(&env); /* it was read before */
    return json_pack("{s:f s:I s:i s:i s:i s:s s:i s:s}", "time", tutti__wall_seconds(), "step",
                     (json_int_t)run->position.at.step, "rank", run->session.rank, "worker",
                     env.rank, "process", (int)getpid(), "host", host, "core", sched_getcpu(),
                     "found", what);
}

/* A pipe or device would block, or have no end. */
static tutti_status open_record(const char *path, FILE **file_p)
{
    const int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
    struct stat st;

    *file_p = NULL;
    if (fd < 0 || fstat(fd, &st) != 0)
        tutti__fail_errno(errno, "cannot write %s", path);
    else if (!S_ISREG(st.st_mode))
        tutti__fail(TUTTI_ERR_IO, "%s is not a regular file", path);
    else if (!(*file_p = fdopen(fd, "a+")))
        tutti__fail_errno(errno, "cannot write %s", path);
    if (!*file_p && fd >= 0)
        close(fd);
    return *file_p ? TUTTI_OK : TUTTI_ERR_IO;
}

/* Adds a line; *before_p: those of this host that were there. */
static tutti_status add_line(const tutti__train_run *run, FILE *file, const char *what,
                             const char *host, int *before_p)
{
    char *text = NULL;
    size_t size = 0;
    ssize_t n;
    json_t *entry;
    bool whole =
        true; /* no line is half written, by a rank that was killed then, or on a full disk */

    while ((n = getline(&text, &size, file)) > 0) {
        entry = json_loads(text, 0, NULL);
        *before_p += was_before(run, entry, host);
        json_decref(entry);
        whole = text[n - 1] == '\n';
    }
    free(text);
    entry = entry_of(run, what, host);
    text = entry ? json_dumps(entry, JSON_COMPACT) : NULL;
    if (text)
        fprintf(file, "%s%s\n", whole ? "" : "\n", text);
    json_decref(entry);
    if (!text)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for a line of guard.jsonl");
    free(text);
    return fflush(file) == 0 ? TUTTI_OK : tutti__fail_errno(errno, "cannot write guard.jsonl");
}

/* In guard.jsonl of the run folder; where it cannot be, a warning says so. */
static void record(const tutti__train_run *run, const char *what)
{
    char path[TUTTI__CONFIG_TEXT + 32], host[65] = "";
    int before = 0;
    FILE *file;
    tutti_status status;

    gethostname(host, sizeof host - 1);
    snprintf(path, sizeof path, "%s/guard.jsonl", run->session.config->run_dir);
    status = open_record(path, &file);
    if (status == TUTTI_OK)
        status = add_line(run, file, what, host, &before);
    if (status != TUTTI_OK)
        tutti_log(TUTTI_LOG_WARN, "guard", "what was found is not recorded: %s",
                  tutti_last_error());
    if (file)
        fclose(file);
    if (before > 0)
        tutti_log(TUTTI_LOG_ERROR, "guard",
                  "this host was named %d time%s before in this run (guard.jsonl): take it out of "
                  "the job",
                  before, tutti__s((uint64_t)before));
}

/* This rank was caught, with the thread's message, which becomes the run's. */
static tutti_status caught(tutti__train_run *run, const char *what)
{
    char message[2048];

    snprintf(message, sizeof message, "%s", tutti_last_error());
    run->guard.caught = true;
    if (what)
        record(run, what);
    return tutti__fail_again(TUTTI_ERR_DEVICE, message);
}

/* ---- Checks ---- */

static tutti_status take(const tutti__train_run *run, tutti__checksums *checksums)
{
    return tutti__checksums_take(checksums, run->session.ddp, tutti__ddp_stream(run->session.ddp));
}

static tutti_status compare(tutti__train_run *run, const tutti__checksums *checksums,
                            tutti_status local)
{
    tutti__replicas_result result;
    const tutti_status status =
        tutti__compare_replicas(run->session.ddp, checksums, local, &result);

    return result.apart ? caught(run, result.named ? "replicas differ" : NULL) : status;
}

tutti_status tutti__guard_compare(tutti__train_run *run)
{
    tutti__checksums checksums = {0};
    const tutti_status status = compare(run, &checksums, take(run, &checksums));

    tutti__checksums_drop(&checksums);
    return status;
}

tutti_status tutti__guard_check(tutti__train_run *run)
{
    tutti__guard *g = &run->guard;
    tutti__position *p = &run->position;
    const uint64_t begin_ns = tutti__now_ns();
    const tutti_status status = take(run, &g->checksums);
    double cpu;
    int64_t every;

    g->check_seconds = seconds_since(begin_ns);
    cpu = cpu_seconds();
    TUTTI_TRY(run->kind->agree(run, compare(run, &g->checksums, status)));
    every = run->session.config->guard > 0 ? run->session.config->guard : interval(run);
    TUTTI_TRY(
        tutti_all_reduce(run->session.group, TUTTI_BUF(&every, 1, TUTTI_I64), TUTTI_MAX, NULL));
    g->checksums_step = p->guarded = p->at.step;
    p->guard_at = p->at.step + (uint64_t)every;
    g->compare_seconds = cpu_seconds() - cpu;
    g->seconds += g->check_seconds + g->compare_seconds;
    g->checks++;
    return TUTTI_OK;
}

tutti_status tutti__guard_begin(tutti__train_run *run)
{
    tutti__guard *g = &run->guard;
    const uint64_t begin_ns = tutti__now_ns();

    if (g->begun || run->session.config->guard == 0)
        return TUTTI_OK;
    g->begun = true;
    TUTTI_TRY(take(run, &g->checksums));
    g->seconds += seconds_since(begin_ns);
    g->checksums_step = run->position.at.step;
    return TUTTI_OK;
}

tutti_status tutti__guard_memory(tutti__train_run *run)
{
    tutti__guard *g = &run->guard;
    const uint64_t begin_ns = tutti__now_ns(), step = run->position.at.step;
    const tutti_ddp *ddp = run->session.ddp;
    const tutti__persistent *changed;
    char name[256];
    tutti_status status = TUTTI_OK;

    if (!g->checksums.list || g->checksums_step != step)
        return TUTTI_OK;
    TUTTI_TRY(tutti__checksums_compare(&g->checksums, ddp, tutti__ddp_stream(ddp),
                                       run->session.shards > 0 && tutti__ddp_shards_open(ddp),
                                       &changed));
    if (changed) {
        tutti__persistent_describe(changed, name, sizeof name);
        (void)tutti__checksums_differ(changed, run->session.rank, step);
        status = caught(run, name);
        g->alone = true;
    }
    g->memory_seconds = seconds_since(begin_ns);
    g->seconds += g->memory_seconds;
    return status;
}

void tutti__guard_shards(const tutti__train_run *run)
{
    char what[160];

    if (tutti__elastic_take_wrong(run->session.elastic, what, sizeof what))
        record(run, what);
}

void tutti__guard_forget(tutti__train_run *run)
{
    tutti__checksums_drop(&run->guard.checksums);
}

void tutti__guard_close(tutti__train_run *run)
{
    const tutti__guard *g = &run->guard;

    if (g->checks > 0 && g->steps > 1 && run->session.rank == 0)
        tutti_log(TUTTI_LOG_INFO, "guard",
                  "%llu checks in %llu steps, every %llu, %.3g ms each: %.2g %% of the steps' time",
                  (unsigned long long)g->checks, (unsigned long long)g->steps,
                  (unsigned long long)(run->position.guard_at - run->position.guarded),
                  g->seconds / (double)g->checks * 1e3,
                  100 * g->seconds / (g->step_seconds * (double)g->steps / (double)(g->steps - 1)));
    tutti__guard_forget(run);
}
