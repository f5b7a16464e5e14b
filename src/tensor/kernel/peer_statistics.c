/* peer_statistics.c -- batch norm's statistics over the batches of several ranks.   SPDX-License-Identifier: MIT
 *
 * Forward gathers each rank's means, squared deviations and count (2C + 1 floats) and joins them by the formula of Chan,
 * Golub and LeVeque: deviations from each rank's own mean, plus those of the means from the common one. So there is no
 * cancellation, as with sums of x and x^2, and a rank without values adds nothing. Every rank joins the same numbers in
 * the same order: statistics, and so the running ones, have the same bits on all. */
#include "tensor/kernel.h"

/* Joins channel c of all ranks, whose contributions are n floats each. */
static void join(const float *all, size_t size, int64_t C, int64_t c, double count, double *mean_p,
                 double *squares_p)
{
    const size_t n = 2 * (size_t)C + 1;
    double sum = 0, squares = 0;

    for (const float *x = all; x < all + size * n; x += n)
        sum += (double)x[2 * C] * (double)x[c];
    for (const float *x = all; x < all + size * n; x += n) {
        const double d = (double)x[c] - sum / count;

        squares += (double)x[C + c] + (double)x[2 * C] * d * d;
    }
    *mean_p = sum / count;
    *squares_p = squares;
}

static void blend(tutti_tensor *running, int64_t c, double value, double momentum)
{
    float *p = running->data;

    p[c] = (float)((1 - momentum) * (double)p[c] + momentum * value);
}

tutti_status tutti__peers_moments(const tutti__batch_norm *a, tutti__batch_norm_saved *saved,
                                  double *squares, tutti_tensor *running_mean,
                                  tutti_tensor *running_var)
{
    const int64_t C = running_mean->shape.d[0];
    const size_t size = (size_t)a->peers->size, n = 2 * (size_t)C + 1;
    float *mine = tutti__step_alloc(running_mean->cx, (size + 1) * n * sizeof *mine);
    float *all = mine + n;

    if (!mine)
        return TUTTI_ERR_MEMORY;
    for (int64_t c = 0; c < C; c++) {
        mine[c] = saved->count > 0 ? saved->mean[c] : 0;
        mine[C + c] = saved->count > 0 ? (float)squares[c] : 0;
    }
    mine[2 * C] = (float)saved->count;
    TUTTI_TRY(a->peers->all_gather(a->peers->self, NULL, mine, n, all));
    if (running_mean->cx->device_ops->plans)
        return TUTTI_OK;
    saved->count = 0;
    for (size_t r = 0; r < size; r++)
        saved->count += (double)all[r * n + n - 1];
    if (saved->count <= 1)
        return tutti__fail(TUTTI_ERR_ARG,
                           "the batches of all %zu ranks have %g values per channel together: "
                           "training needs more than 1; use larger batches or an eval step",
                           size, saved->count);
    for (int64_t c = 0; c < C; c++) {
        double mean;

        join(all, size, C, c, saved->count, &mean, &squares[c]);
        saved->mean[c] = (float)mean;
        blend(running_mean, c, mean, (double)a->momentum);
        blend(running_var, c, squares[c] / (saved->count - 1), (double)a->momentum);
    }
    return TUTTI_OK;
}

tutti_status tutti__peers_sums(tutti_ctx *cx, const tutti_peers *peers, int64_t C, double *sum,
                               double *sum_xhat)
{
    float *both = tutti__step_alloc(cx, 2 * (size_t)C * sizeof *both);

    if (!both)
        return TUTTI_ERR_MEMORY;
    for (int64_t c = 0; c < C; c++) {
        both[c] = (float)sum[c];
        both[C + c] = (float)sum_xhat[c];
    }
    TUTTI_TRY(peers->sum(peers->self, NULL, both, 2 * (size_t)C));
    for (int64_t c = 0; c < C; c++) {
        sum[c] = (double)both[c];
        sum_xhat[c] = (double)both[C + c];
    }
    return TUTTI_OK;
}
