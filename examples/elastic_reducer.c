/* elastic_reducer.c -- elastic training for a program that computes its gradients itself.   SPDX-License-Identifier: MIT
 *
 *     cc elastic_reducer.c $(pkg-config --cflags --libs tutti_comm) -lm && tutti run -n 3 ./a.out
 *
 * Fits sin(x) by a sum of sines, gradients by hand: no tensors, no tape. A step is 6 shards of the samples, whichever worker computes them;
 * kill -9 any worker while it runs, and the coefficients at the end have the same bits. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/elastic.h>

enum { SHARDS = 6, TERMS = 32, SAMPLES = 3000 };

static float a[TERMS],
    v[TERMS]; /* coefficients and velocities: with the reducer's ranges, the state */

/* This shard's share of the gradient of the mean squared error of sum_k a_k sin((k + 1) x / 2) as sin(x) + x / 4. */
static void gradient(uint64_t step, int shard, float *g)
{
    memset(g, 0, TERMS * sizeof *g);
    for (int i = shard; i < SAMPLES; i += SHARDS) {
        const float x = 6 * ((float)((i * 37 + (int)step * 11) % SAMPLES) / SAMPLES) - 3;
        float y = 0, s[TERMS];

        for (int k = 0; k < TERMS; k++)
            y += a[k] * (s[k] = sinf((float)(k + 1) * x / 2));
        for (int k = 0; k < TERMS; k++)
            g[k] += 2 * (y - sinf(x) - x / 4) * s[k] * SHARDS / SAMPLES;
    }
}

static void update(const float *g)
{
    for (int k = 0; k < TERMS; k++) {
        v[k] = 0.9f * v[k] - 0.02f * g[k];
        a[k] += v[k];
    }
}

int main(int argc, char **argv)
{
    const uint64_t steps = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000;
    const tutti_reducer_parameter parameter = {.name = "a", .count = TERMS, .dtype = TUTTI_F32};
    tutti_reducer *r;
    tutti_elastic *e;
    uint64_t bits = 0;
    int shard;

    TUTTI_MUST(tutti_reducer_new(&r, NULL, &parameter, 1, &(tutti_reducer_opts){.shards = SHARDS}));
    TUTTI_MUST(tutti_elastic_new(&e, &(tutti_elastic_opts){.shards = SHARDS}));
    TUTTI_MUST(tutti_elastic_keep_reducer(e, r));
    TUTTI_MUST(tutti_elastic_keep_bytes(e, "a", a, sizeof a));
    TUTTI_MUST(tutti_elastic_keep_bytes(e, "v", v, sizeof v));

    while (tutti_elastic_step(e) < steps && tutti_elastic_begin(e)) {
        while ((shard = tutti_elastic_shard(e)) >= 0) {
            gradient(tutti_elastic_step(e), shard, tutti_reducer_grad(r, 0));
            tutti_reducer_ready(r, 0); /* errors are kept for tutti_elastic_finish */
        }
        if (tutti_elastic_finish(e)) { /* now the gradient is the mean over all shards */
            update(tutti_reducer_grad(r, 0));
            tutti_elastic_commit(e);
        }
    }
    TUTTI_MUST(tutti_elastic_end(e));
    for (int k = 0; k < TERMS; k++) {
        uint32_t word;

        memcpy(&word, &a[k], sizeof word);
        bits = (bits ^ word) * 1099511628211u;
    }
    if (!tutti_elastic_left(e))
        tutti_log0(tutti_elastic_group(e), "step %" PRIu64 "  a[1] %.4f  digest %016" PRIx64,
                   tutti_elastic_step(e), (double)a[1], bits);
    tutti_elastic_free(e);
    tutti_reducer_free(r);
    return 0;
}
