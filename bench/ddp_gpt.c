/* ddp_gpt.c -- steps of gpt2 of any size: tokens/s, memory, part of the cores' FMA peak, and the time of each operation.
 * SPDX-License-Identifier: MIT
 *
 *     build/bench/bench_ddp_gpt [B=4] [T=64] [L=12] [H=12] [C=768] [V=50257] [NT=2] [AMP=1] [ZERO=3] [OPS=1] [SECONDS=10]
 *     tutti run -n 2 build/bench/bench_ddp_gpt NT=1
 *
 * A step is forward, cross entropy of each next token, backward and AdamW, on random tokens in memory; gradients are averaged if there
 * are several ranks. CPU time is that of all threads of a step, which other programs disturb least. The median of the steps of SECONDS seconds, at least 5, after 3. bench/gpt.sh runs it beside peers. FLOPs of a
 * token: 6 a parameter but the positions', which are in no product, and 6 L T C of causal attention. OPS: by operation, of rank 0. */
#include "device/cpu/peak.h"
#include "tensor/op_profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <tutti/tutti.h>

enum { WARM_UP = 3, LEAST = 5, MOST = 1000 };

typedef struct sizes {
    int64_t B, T, L, H, C, V, NT, AMP, ZERO, OPS, SECONDS;
} sizes;

typedef struct stand {
    sizes s;
    tutti_group *group;
    tutti_ctx *cx;
    tutti_model *model;
    tutti_ddp *ddp;
    tutti_optim *optim;
    int64_t *tokens; /* B * T + 1 */
    float loss;
} stand;

static bool parse(sizes *s, const char *text)
{
    const struct {
        const char *name;
        int64_t *value;
    } known[] = {{"B=", &s->B},
                 {"T=", &s->T},
                 {"L=", &s->L},
                 {"H=", &s->H},
                 {"C=", &s->C},
                 {"V=", &s->V},
                 {"NT=", &s->NT},
                 {"AMP=", &s->AMP},
                 {"ZERO=", &s->ZERO},
                 {"OPS=", &s->OPS},
                 {"SECONDS=", &s->SECONDS}};

    for (size_t i = 0; i < TUTTI__COUNT_OF(known); i++)
        if (strncmp(text, known[i].name, strlen(known[i].name)) == 0)
            return tutti__parse_int64(text + strlen(known[i].name), known[i].value);
    return false;
}

static double step(stand *t)
{
    const sizes *s = &t->s;
    const tutti_array x = {t->tokens, TUTTI_SHAPE(s->B, s->T), TUTTI_I64},
                      y = {t->tokens + 1, TUTTI_SHAPE(s->B * s->T), TUTTI_I64};
    const uint64_t begin_ns = tutti__now_ns();
    tutti_tensor *logits, *loss;

    tutti_step_begin(t->cx, &(tutti_step_opts){.autocast = s->AMP ? TUTTI_BF16 : TUTTI_F32});
    logits = tutti_model_forward(t->model, tutti_input(t->cx, x));
    loss = tutti_cross_entropy(tutti_reshape(logits, TUTTI_SHAPE(s->B * s->T, s->V)),
                               tutti_input(t->cx, y));
    tutti_optim_zero_grad(t->optim);
    TUTTI_MUST(tutti_backward(loss));
    t->loss = tutti_item(loss);
    TUTTI_MUST(tutti_optim_step(t->optim));
    tutti_step_end(t->cx);
    return (double)(tutti__now_ns() - begin_ns) * 1e-9;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static int longest_first(const void *a, const void *b)
{
    const tutti__profile_row *const *x = a, *const *y = b;

    return ((*x)->ns < (*y)->ns) - ((*x)->ns > (*y)->ns);
}

/* Rows with the same name and shape, of all layers, as one. */
static void print_operations(const tutti__profile *profile, size_t steps, double step_ms,
                             double peak)
{
    const size_t n = tutti__profile_n_rows(profile);
    const tutti__profile_row **order = calloc(n + 1, sizeof(void *));
    tutti__profile_row *all = calloc(n + 1, sizeof *all);
    size_t kinds = 0;
    double rest = step_ms;

    for (size_t i = 0; order && all && i < n; i++) {
        const tutti__profile_row *row = tutti__profile_at(profile, i);
        size_t k = 0;

        while (k < kinds &&
               (strcmp(all[k].name, row->name) != 0 || strcmp(all[k].shape, row->shape) != 0))
            k++;
        if (k == kinds) {
            all[k] = *row;
            order[k] = &all[k];
            kinds++;
            continue;
        }
        all[k].calls += row->calls;
        all[k].ns += row->ns;
    }
    if (kinds)
        qsort(order, kinds, sizeof(void *), longest_first);
    for (size_t i = 0; i < kinds; i++) {
        const tutti__profile_row *row = order[i];
        const double ms = (double)row->ns * 1e-6 / (double)steps;
        const double calls = (double)row->calls / (double)steps;

        rest -= ms;
        printf("%-30s %-44s %5.0f %9.2f ms %5.1f %%", row->name, row->shape, calls, ms,
               100 * ms / step_ms);
        if (row->flops > 0 && ms > 0)
            printf(" %7.1f GFLOP/s, %.2f of peak\n", row->flops * calls / ms * 1e-6,
                   row->flops * calls / ms * 1e-6 / peak);
        else
            printf(" %7.1f GB/s\n", ms > 0 ? row->bytes * calls / ms * 1e-6 : 0);
    }
    printf("%-75s %14.2f ms\n", "between operations, and the optimizer", rest);
    free(order);
    free(all);
}

static double cpu_ms(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e3 +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-3;
}

static void report(stand *t, double *times, size_t n, double peak, double mib_before, double cpu)
{
    const sizes *s = &t->s;
    const double parameters =
        (double)(s->V * s->C + s->L * (12 * s->C * s->C + 13 * s->C) + 2 * s->C);
    const double flops = 6 * parameters + 6.0 * (double)(s->L * s->T * s->C);
    const int ranks = t->group ? tutti_group_size(t->group) : 1;
    struct rusage usage;
    double rate;

    qsort(times, n, sizeof *times, by_value);
    rate = (double)(s->B * s->T) / times[n / 2];
    getrusage(RUSAGE_SELF, &usage);
    if (t->group && tutti_group_rank(t->group) != 0)
        return;
    printf(
        "%.1f tok/s, step %.1f ms, CPU %.1f ms, loss %.4f, memory %.0f MiB, %.2f of %.0f GFLOP/s\n",
        rate * ranks, times[n / 2] * 1e3, cpu, (double)t->loss,
        (double)usage.ru_maxrss / 1024 - mib_before, rate * flops / (peak * 1e9), peak);
}

static void open_stand(stand *t)
{
    const sizes *s = &t->s;
    const tutti_model_opts opts = {.channels = s->T,
                                   .height = 1,
                                   .width = 1,
                                   .classes = s->V,
                                   .layers = (int)s->L,
                                   .hidden = (int)s->C,
                                   .heads = (int)s->H,
                                   .context = s->T > 1024 ? (int)s->T : 1024};

    if (getenv("WORLD_SIZE"))
        TUTTI_MUST(tutti_group_init(&t->group, NULL));
    TUTTI_MUST(
        tutti_ctx_new(&t->cx, (tutti_device){TUTTI_CPU, 0},
                      &(tutti_ctx_opts){.threads = (int)s->NT, .defers_parameters = s->ZERO == 3}));
    TUTTI_MUST(tutti_model_new(&t->model, t->cx, "gpt2", &opts));
    if (t->group)
        TUTTI_MUST(tutti_ddp_new(&t->ddp, tutti_model_module(t->model), t->group,
                                 &(tutti_ddp_opts){.zero = (int)s->ZERO}));
    TUTTI_MUST(tutti_adamw_new(&t->optim, tutti_model_module(t->model),
                               &(tutti_adam_opts){.lr = 3e-4f, .weight_decay = 0.01f}));
    t->tokens = calloc((size_t)(s->B * s->T + 1), sizeof *t->tokens);
    for (int64_t i = 0; t->tokens && i <= s->B * s->T; i++)
        t->tokens[i] = (int64_t)((uint64_t)(i + 1) * 2654435761u % (uint64_t)s->V);
}

int main(int argc, char **argv)
{
    stand t = {.s = {4, 64, 12, 12, 768, 50257, 2, 0, 0, 0, 10}};
    struct rusage usage;
    tutti__cpu_peak peak = {.gflops = 0};
    double *times = calloc(MOST, sizeof *times), ms = 0, cpu;
    size_t n = 0;
    uint64_t end_ns;

    for (int i = 1; i < argc; i++)
        if (!parse(&t.s, argv[i])) {
            fprintf(stderr,
                    "bench_ddp_gpt: %s: expected NAME=NUMBER, as at the top of bench/ddp_gpt.c\n",
                    argv[i]);
            return 2;
        }
    TUTTI_MUST(tutti__cpu_peak_measure(&peak));
    getrusage(RUSAGE_SELF, &usage);
    open_stand(&t);
    for (int i = 0; i < WARM_UP; i++)
        step(&t);
    if (t.s.OPS)
        t.cx->profile = tutti__profile_new();
    cpu = cpu_ms();
    end_ns = tutti__now_ns() + (uint64_t)t.s.SECONDS * 1000000000u;
    while (times && n < MOST && (n < LEAST || (!t.group && tutti__now_ns() < end_ns)))
        times[n++] = step(&t);
    cpu = (cpu_ms() - cpu) / (double)n;
    for (size_t i = 0; i < n; i++)
        ms += times[i] * 1e3 / (double)n;
    report(&t, times, n, peak.gflops * (double)t.s.NT, (double)usage.ru_maxrss / 1024, cpu);
    if (t.cx->profile)
        print_operations(t.cx->profile, n, ms, peak.gflops * (double)t.s.NT);
    tutti_optim_free(t.optim);
    tutti_ddp_free(t.ddp);
    tutti_model_free(t.model);
    tutti_ctx_free(t.cx);
    tutti_group_free(t.group);
    free(t.tokens);
    free(times);
    return 0;
}
