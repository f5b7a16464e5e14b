/* results.c -- prints a run's results, and where its time went.   SPDX-License-Identifier: MIT */
#include "train/run/run.h"

#include "data/dataset.h"
#include "train/session/scores.h"

#include <math.h>
#include <string.h>

enum { RANKS_SHOWN = 4 }; /* in the table of ranks that others waited for */

/* Prints a row of 37 columns, which fits half a screen. */
static void print_row(tutti__train_run *run, const char *name, const char *value, const char *more)
{
    tutti__progress_say(&run->progress, "  %-18s %8s%s%s", name, value, *more ? "  " : "", more);
}

__attribute__((format(printf, 3, 4))) static void print_value(tutti__train_run *run,
                                                              const char *name, const char *format,
                                                              ...)
{
    char text[64];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    print_row(run, name, text, "");
}

static void print_score(void *user, const char *name, const char *value)
{
    char text[64];

    snprintf(text, sizeof text, "test %s", name);
    print_row(user, text, value, "");
}

static void print_rate(tutti__train_run *run, const tutti__summary *s)
{
    char name[24], mfu[32] = "", rate[24];
    const bool of_tokens = isfinite(s->tokens_per_s);

    snprintf(name, sizeof name, "%s/s",
             of_tokens ? "tokens" : tutti__dataset_noun(run->session.data.train));
    snprintf(rate, sizeof rate, "%.0f", of_tokens ? s->tokens_per_s : s->images_per_s);
    if (isfinite(s->mfu))
        snprintf(mfu, sizeof mfu, "%.1f %% of the peak", 100 * s->mfu);
    if (isfinite(s->images_per_s))
        print_row(run, name, rate, mfu);
}

/* What rank 0 has; parameters: the most at a time. */
static void print_zero(tutti__train_run *run)
{
    const tutti_zero_stats z = tutti_zero_get_stats(run->session.zero);

    print_value(run, "MiB of state, rank", "%.2f",
                (double)tutti_optim_state_bytes(run->session.optim) / 1048576);
    if (z.stage >= 2)
        print_value(run, "MiB of gradients", "%.2f", (double)z.gradient_bytes / 1048576);
    if (z.stage == 3)
        print_value(run, "MiB of weights", "%.2f", (double)z.most_parameter_bytes / 1048576);
}

static void print_memory(tutti__train_run *run, const tutti__summary *s)
{
    if (s->planned_memory > 0)
        print_value(run, "MiB planned", "%.1f", (double)s->planned_memory / 1048576);
    if (s->peak_memory > 0)
        print_value(run, "MiB at most", "%.1f", (double)s->peak_memory / 1048576);
}

static void print_figures(tutti__train_run *run, const tutti__summary *s)
{
    char rate[24], best[64];

    tutti__scores_each(&run->position.scores, run->session.parts->own.metrics, print_score, run);
    if (isfinite(s->val_loss))
        print_value(run, "test loss", "%.4f", s->val_loss);
    if (isfinite(s->train_loss))
        print_value(run, "training loss", "%.4f", s->train_loss);
    print_rate(run, s);
    if (s->best_step > 0 &&
        (tutti__best_is_kept(run->session.config) || run->session.config->early_stopping > 0)) {
        snprintf(best, sizeof best, "%s, after step %lld",
                 tutti__monitor_of(run->session.config).name, (long long)s->best_step);
        snprintf(rate, sizeof rate, "%.4f", s->best_value);
        print_row(run, "best", rate, best);
    }
    print_memory(run, s);
    print_value(run, "steps", "%lld", (long long)s->steps);
    print_value(run, "epochs", "%lld", (long long)s->epochs);
    if (s->lost_workers + s->joined_workers + s->left_workers > 0)
        print_value(run, "lost, joined, left", "%lld %lld %lld", (long long)s->lost_workers,
                    (long long)s->joined_workers, (long long)s->left_workers);
    if (s->taken_over_shards > 0)
        print_value(run, "shards taken over", "%lld", (long long)s->taken_over_shards);
    if (run->session.scaler) {
        print_value(run, "loss scale", "%g", (double)tutti_scaler_get_scale(run->session.scaler));
        print_value(run, "skipped steps", "%llu", (unsigned long long)run->position.skipped_steps);
    }
    if (run->session.zero)
        print_zero(run);
    if (strcmp(run->session.config->comm_hook, "none") != 0 && s->gradient_bytes > 0)
        print_value(run, "on the wire", "%.1f %%",
                    100 * (double)s->wire_bytes / (double)s->gradient_bytes);
}

/* ---- Where the time went ------------------------------------------------------------------------------- */

static void print_time(tutti__train_run *run, const char *name, double seconds, double all)
{
    char time[24], percent[16];

    if (seconds >= 100)
        tutti__time_text(seconds, time);
    else
        snprintf(time, sizeof time, "%.2f s", seconds);
    snprintf(percent, sizeof percent, "%5.1f %%", all > 0 ? 100 * seconds / all : 0);
    print_row(run, name, time, percent);
}

/* The ranks that others waited for most, one row each, and the rest in one row. */
static void print_waits(tutti__train_run *run, double all)
{
    const tutti__ledger *l = &run->totals.ledger;
    const int rows = l->size == 1 ? 0 : l->size < RANKS_SHOWN ? l->size : RANKS_SHOWN;
    double left = l->total[TUTTI__TIME_WAIT], before = INFINITY;
    char name[40];
    int last = -1;

    for (int row = 0; row < rows; row++) {
        int most = -1;

        for (int r = 0; r < l->size; r++) {
            const double s = l->waited_for[r];

            if ((s < before || (s == before && r > last)) && (most < 0 || s > l->waited_for[most]))
                most = r;
        }
        before = l->waited_for[most];
        last = most;
        snprintf(name, sizeof name, "waiting for rank %d", most);
        print_time(run, name, before, all);
        left -= before;
    }
    if ((rows && l->size > rows) || left >= 0.0005 * all)
        print_time(run, last < 0 ? "waiting for ranks" : "waiting for others", left, all);
}

static void print_times(tutti__train_run *run, double all)
{
    static const struct {
        tutti__time what;
        const char *name;
    } parts[] = {{TUTTI__TIME_COMPUTE, "compute"},
                 {TUTTI__TIME_COMMUNICATION, "communication"},
                 {TUTTI__TIME_WAIT, NULL},
                 {TUTTI__TIME_STAGES, "waiting for stages"},
                 {TUTTI__TIME_DATA, "data"},
                 {TUTTI__TIME_CHECKPOINT, "checkpoints"},
                 {TUTTI__TIME_EVALUATION, "evaluation"},
                 {TUTTI__TIME_LOST, "lost to failures"}};
    double rest = all;

    for (size_t i = 0; i < TUTTI__COUNT_OF(parts); i++) {
        const double seconds = run->totals.ledger.total[parts[i].what];

        rest -= seconds;
        if (!parts[i].name)
            print_waits(run, all);
        else if ((parts[i].what != TUTTI__TIME_LOST && parts[i].what != TUTTI__TIME_STAGES) ||
                 seconds > 0)
            print_time(run, parts[i].name, seconds, all);
    }
    print_time(run, "start and end", rest > 0 ? rest : 0, all);
    print_time(run, "in all", all, all);
}

/* By lines, because a message is one. */
static void print_sample_text(tutti__train_run *run)
{
    const char *p = tutti__run_sample_text(run);

    tutti__progress_say(&run->progress, "\na sample of its text");
    while (*p) {
        const size_t n = strcspn(p, "\n");

        tutti__progress_say(&run->progress, "  %.*s", (int)n, p);
        p += n + (p[n] == '\n');
    }
}

void tutti__run_print_results(tutti__train_run *run, const tutti__summary *s)
{
    const char *program = run->session.parts->program;
    char ranks[32] = "", why[TUTTI__PLAN_WHY];

    tutti__run_why(run, why);
    if (why[0])
        tutti__progress_say(&run->progress, "\n%s", why);
    tutti__progress_say(&run->progress, "\n%s",
                        run->session.stop.stopping ? "interrupted" : "result");
    print_figures(run, s);
    if (*tutti__run_sample_text(run))
        print_sample_text(run);
    tutti__progress_say(&run->progress, "\nwhere the time went");
    print_times(run, s->seconds);
    tutti__progress_say(&run->progress, "\nrun folder %s", run->folder.path);
    if (run->session.stop.stopping &&
        tutti_group_local_size(run->session.group) == run->session.size && run->session.size > 1)
        snprintf(ranks, sizeof ranks, "-n %d ", run->session.size);
    if (run->session.stop.stopping && !run->session.config->lr_find)
        tutti__progress_say(&run->progress,
                            "to continue: %s%s%s%s--config %s/config.json --resume auto",
                            !program ? "tutti train "
                            : *ranks ? "tutti run "
                                     : "",
                            ranks, program ? program : "", program ? " " : "", run->folder.path);
}
