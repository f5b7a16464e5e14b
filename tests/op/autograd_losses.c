/* Losses, and distances.   SPDX-License-Identifier: MIT
 * timeout: 120   devices: strict cuda */
#include "op/rows.h"

/* Weights of n classes: an input without gradient. */
static tutti_tensor *weights(const bench *b, int64_t n)
{
    static const float values[] = {0.5f, 2, 1, 0, 0.25f, 3, 1, 1.5f, 0.75f, 1};

    return tutti_input(b->cx, (tutti_array){values, TUTTI_SHAPE(n), TUTTI_F32});
}

/* A label for one row without a batch. */
static tutti_tensor *label(const bench *b)
{
    static const int64_t value = 3;

    return tutti_input(b->cx, (tutti_array){&value, {0}, TUTTI_I64});
}

/* -1, 1, -1, ... */
static tutti_tensor *signs(const bench *b, int64_t n)
{
    static const float values[] = {-1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1};

    return tutti_input(b->cx, (tutti_array){values, TUTTI_SHAPE(n), TUTTI_F32});
}

#define ENTROPY(...)                                                                               \
    tutti_cross_entropy_with(in[0], in[1], &(tutti_cross_entropy_opts){__VA_ARGS__})
#define NLL(...) tutti_nll_loss(in[0], in[1], &(tutti_nll_loss_opts){__VA_ARGS__})
#define LOSS(...)                                                                                  \
    &(tutti_loss_opts)                                                                             \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define SMOOTH(...) tutti_smooth_l1_loss(in[0], in[1], &(tutti_smooth_l1_loss_opts){__VA_ARGS__})
#define HUBER(...)  tutti_huber_loss(in[0], in[1], &(tutti_huber_loss_opts){__VA_ARGS__})
#define KL(...)     tutti_kl_div(in[0], in[1], &(tutti_kl_div_opts){__VA_ARGS__})
#define BINARY(...)                                                                                \
    &(tutti_binary_cross_entropy_opts)                                                             \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define MARGIN(...)                                                                                \
    &(tutti_margin_loss_opts)                                                                      \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define TRIPLET(...)                                                                               \
    tutti_triplet_margin_loss(in[0], in[1], in[2], &(tutti_triplet_margin_loss_opts){__VA_ARGS__})
#define MEAN .reduction = TUTTI_REDUCTION_MEAN
#define SUM  .reduction = TUTTI_REDUCTION_SUM
#define EACH .reduction = TUTTI_REDUCTION_NONE

#define CASES "op/cases_losses.def"
#include "op/cases.h"
