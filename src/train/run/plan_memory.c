/* plan_memory.c -- whether a run will have enough memory, before its first step.   SPDX-License-Identifier: MIT */
#include "base/base.h"
#include "comm/comm.h"
#include "train/config/config_read.h"
#include "train/forecast/outlook.h"
#include "train/run/run.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define MIB 1048576.0

/* What there is for the ranks of this host, and what says so. */
typedef struct room {
    size_t bytes; /* 0: not known */
    bool each;    /* for each rank, not for all together */
    const char *what;
} room;

static void consider(room *r, size_t bytes, bool each, const char *what, int local_ranks)
{
    const size_t n = each ? 1 : (size_t)local_ranks, now = r->each ? 1 : (size_t)local_ranks;

    if (bytes > 0 && (r->bytes == 0 || bytes / n < r->bytes / now))
        *r = (room){bytes, each, what};
}

/* Limits that hold whatever else runs on the machine. */
static room find_room(int local_ranks)
{
    struct rlimit limit;
    int64_t most, used, total = tutti__meminfo("MemTotal"), swap = tutti__meminfo("SwapTotal");
    room r = {0, false, ""};

    if (total > 0)
        consider(&r, (size_t)(total + (swap > 0 ? swap : 0)), false, "this machine has",
                 local_ranks);
    if (tutti__cgroup_memory(&most, &used))
        consider(&r, (size_t)most, false, "the control group's limit is", local_ranks);
    if (getrlimit(RLIMIT_DATA, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        consider(&r, (size_t)limit.rlim_cur, true, "ulimit -d is", local_ranks);
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        consider(&r, (size_t)limit.rlim_cur, true, "ulimit -v is", local_ranks);
    return r;
}

/* Of a run by shards before there is a group: by its launcher. */
static tutti__layout_of_ranks layout_of(const tutti__session *s)
{
    tutti__layout_of_ranks l = {.zero = (int)s->config->zero,
                                .zero_ranks = (int)s->config->zero_ranks,
                                .pipeline = (int)s->config->pipeline,
                                .tensor = (int)s->config->tensor};
    int64_t local = 0;

    l.ranks = s->group ? s->size : tutti__launcher_find().n_ranks;
    l.ranks = l.ranks > 0 ? l.ranks : 1;
    if (s->group)
        l.local_ranks = tutti_group_local_size(s->group);
    else if (tutti__parse_int64(getenv("LOCAL_WORLD_SIZE") ? getenv("LOCAL_WORLD_SIZE") : "",
                                &local))
        l.local_ranks = (int)local;
    if (l.local_ranks < 1 || l.local_ranks > l.ranks || l.ranks % l.local_ranks != 0)
        l.local_ranks = l.ranks;
    return l;
}

static bool is_first(const tutti__session *s)
{
    const char *rank = getenv("RANK");

    return s->group ? s->rank == 0 : !rank || strcmp(rank, "0") == 0;
}

/* A program's own model may do anything when it is called; a GPU's kernels are not known here. */
static bool can_plan(const tutti__train_run *run)
{
    const tutti__session *s = &run->session;
    const char *text = s->config->device;
    tutti_device device;

    return is_first(s) && !s->parts->program && !s->config->lr_find &&
           (strcmp(text, "cpu") == 0 || strcmp(text, "auto") == 0) &&
           tutti_device_parse(&device, text, 0) == TUTTI_OK && device.kind == TUTTI_CPU;
}

/* " (--zero 1 --recompute true would take 310 MiB)", or "". */
static void propose(const tutti__train_run *run, const tutti__outlook_ask *ask,
                    const tutti__outlook *asked, char *text, size_t size)
{
    const tutti__session *s = &run->session;
    tutti__outlook *fitting = tutti__alloc(TUTTI__OUTLOOKS * sizeof *fitting);
    char flags[128];
    size_t n = 0;

    text[0] = '\0';
    if (fitting && tutti__outlook_fitting(fitting, &n, s->config, s->parts, ask, asked) == TUTTI_OK)
        if (n > 0) {
            tutti__outlook_flags(&fitting[0], asked, flags, sizeof flags);
            snprintf(text, size, ";%s would take %.0f MiB", flags, (double)fitting[0].f.peak / MIB);
        }
    free(fitting);
}

/* Tensors and the program: what is certainly used. */
static size_t least(const tutti__footprint *f)
{
    return f->parameters + f->gradients + f->optimizer + f->average + f->activations;
}

static tutti_status check(const tutti__train_run *run, tutti__outlook_ask *ask,
                          const tutti__outlook *o, const room *r)
{
    const size_t ranks = r->each ? 1 : (size_t)o->layout.local_ranks;
    char other[256];

    if (r->bytes == 0 || least(&o->f) <= r->bytes / ranks)
        return TUTTI_OK;
    ask->limit = r->bytes / ranks;
    propose(run, ask, o, other, sizeof other);
    return tutti__fail(
        TUTTI_ERR_MEMORY,
        "memory: a rank needs %.0f MiB (%.0f of parameters, %.0f of gradients, %.0f of "
        "the optimizer's state, %.0f of a step), and %s %.0f MiB for %zu rank%s%s "
        "(tutti plan --memory shows what fits; TUTTI_MEMORY_CHECK=off tries anyway)",
        (double)o->f.peak / MIB, (double)o->f.parameters / MIB, (double)o->f.gradients / MIB,
        (double)o->f.optimizer / MIB, (double)o->f.activations / MIB, r->what,
        (double)r->bytes / MIB, ranks, tutti__s(ranks), other);
}

tutti_status tutti__run_plan_memory(tutti__train_run *run)
{
    const tutti__session *s = &run->session;
    tutti__outlook o = {.layout = layout_of(s),
                        .recompute = s->config->recompute,
                        .batch_size = s->config->batch_size,
                        .grad_accumulation = s->config->grad_accumulation};
    tutti__outlook_ask ask = {.layout = o.layout, .step_ms = 1, .data = &s->data};
    const room r = find_room(o.layout.local_ranks);
    static const char *const names[] = {"auto", "off"};
    size_t choice;
    tutti_status status;
    bool checks;

    if (!can_plan(run) || tutti__layout_check(&o.layout, s->config->shards) != TUTTI_OK)
        return tutti__fail_again(TUTTI_OK, "");
    TUTTI_TRY(tutti__env_choice(TUTTI__ENV_MEMORY_CHECK, names, TUTTI__COUNT_OF(names), &choice));
    checks = choice == 0;
    status = tutti__outlook_find(&o, s->config, s->parts, &ask, 0);
    if (status == TUTTI_ERR_MEMORY && r.each &&
        checks) /* it has as many addresses as the run would */
        return tutti__fail(
            status,
            "memory: a rank needs more than there is, and %s %.0f MiB: %s (TUTTI_MEMORY_CHECK=off "
            "tries anyway)",
            r.what, (double)r.bytes / MIB, tutti_last_error());
    if (status != TUTTI_OK) {
        /* whatever is wrong with the run, it will say itself */
        tutti_log(TUTTI_LOG_DEBUG, "train", "memory is not planned: %s", tutti_last_error());
        return tutti__fail_again(TUTTI_OK, "");
    }
    run->planned_memory = (int64_t)o.f.peak;
    tutti_log(TUTTI_LOG_DEBUG, "train", "memory planned for rank 0: %.1f MiB",
              (double)o.f.peak / MIB);
    return checks ? check(run, &ask, &o, &r) : TUTTI_OK;
}
