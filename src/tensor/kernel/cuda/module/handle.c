/* handle.c -- the table of convolutions and products, and a handle's cache of plans.   SPDX-License-Identifier: MIT */
#include "tensor/kernel/cuda/module/handle.h"

#include <stdlib.h>
#include <string.h>

/* Bounded, so that changing shapes (images of all sizes) do not fill memory with plans. */
#define MAX_PLANS 2048

static size_t bucket_of(const int64_t *key)
{
    uint64_t hash = 0;

    for (int i = 0; i < TUTTI__CUDA_KEY; i++)
        hash = (hash ^ (uint64_t)key[i]) * 0x9e3779b97f4a7c15u;
    return (hash >> 40) % TUTTI__CUDA_BUCKETS;
}

tutti__cuda_plan *tutti__cuda_plan_find(const tutti__cuda_handle *h, const int64_t *key)
{
    tutti__cuda_plan *plan = h->buckets[bucket_of(key)];

    while (plan && memcmp(plan->key, key, sizeof plan->key) != 0)
        plan = plan->next;
    return plan;
}

static void plans_free(tutti__cuda_handle *h)
{
    for (int i = 0; i < TUTTI__CUDA_BUCKETS; i++) {
        while (h->buckets[i]) {
            tutti__cuda_plan *plan = h->buckets[i];

            h->buckets[i] = plan->next;
            plan->free(plan);
        }
    }
    h->n_plans = 0;
}

void tutti__cuda_plan_add(tutti__cuda_handle *h, tutti__cuda_plan *plan)
{
    tutti__cuda_plan **bucket = &h->buckets[bucket_of(plan->key)];

    if (h->n_plans >= MAX_PLANS) {
        (void)cudaStreamSynchronize(h->stream); /* a plan may hold the code of a running kernel */
        plans_free(h);
    }
    plan->next = *bucket;
    *bucket = plan;
    h->n_plans++;
}

void *tutti__cuda_host_memory(size_t bytes)
{
    void *p = calloc(1, bytes);

    if (!p)
        (void)tutti__cuda_fail(TUTTI_ERR_MEMORY, "no memory of the host for %zu bytes", bytes);
    return p;
}

tutti_status tutti__cuda_workspace(const tutti__cuda_handle *h, size_t bytes, void **p)
{
    *p = bytes ? h->o.workspace(h->o.arg, bytes) : NULL;
    if (bytes && !*p)
        return tutti__cuda_fail(
            TUTTI_ERR_MEMORY, "no memory for a workspace of %zu bytes: a smaller batch needs less",
            bytes);
    return TUTTI_OK;
}

int64_t tutti__cuda_alignment(const void *a, const void *b, const void *c)
{
    const uintptr_t all = (uintptr_t)a | (uintptr_t)b | (uintptr_t)c | 16;

    return (int64_t)(all & (~all + 1));
}

static tutti_status handle_open(const tutti__cuda_products_options *options, void **handle_p)
{
    tutti__cuda_handle *h = tutti__cuda_host_memory(sizeof *h);

    *handle_p = h;
    if (!h)
        return TUTTI_ERR_MEMORY;
    h->o = *options;
    h->stream = options->stream;
    return TUTTI_OK;
}

static void handle_close(void *handle)
{
    tutti__cuda_handle *h = handle;

    if (!h)
        return;
    (void)tutti__cuda_use(h->o.device);
    (void)cudaStreamSynchronize(h->stream);
    plans_free(h);
    tutti__cuda_convolution_close(h);
    tutti__cuda_product_close(h);
    free(h);
}

const tutti__cuda_products tutti__cuda_products_table = {
    .open = handle_open,
    .close = handle_close,
    .convolution = tutti__cuda_convolve,
    .product = tutti__cuda_multiply,
};
