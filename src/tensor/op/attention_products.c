/* attention_products.c -- attention as two products and a softmax between them, for devices that have these but no attention.
 * SPDX-License-Identifier: MIT
 *   q [N,Hkv,G,L,D] k^T [N,Hkv,1,S,D]   ->   softmax [N,Hkv,G,L,S]   ->   times v [N,Hkv,1,S,Dv]: G query heads share one of keys */
#include "tensor/attention.h"

#include <tutti/operations.h>

/* x as [N,heads,group,rows,size]. columns: of [N,rows,heads * group * size], else of [..,heads * group,rows,size]. */
static tutti_tensor *with_groups(tutti_tensor *x, bool columns, int64_t n, int64_t heads,
                                 int64_t group, int64_t rows, int64_t size)
{
    if (!columns)
        return tutti_reshape(x, TUTTI_SHAPE(n, heads, group, rows, size));
    x = tutti_reshape(x, TUTTI_SHAPE(n, rows, heads, group, size));
    return tutti_permute(x, TUTTI_DIMS(0, 2, 3, 1, 4));
}

/* first, first + 1, ... in that shape; NULL with the message set */
static tutti_tensor *numbers(tutti_ctx *cx, tutti_shape shape, int64_t first)
{
    const int64_t n = tutti_shape_count(shape);
    float *p = tutti__step_alloc(cx, (size_t)n * sizeof *p);

    if (!p)
        return NULL;
    for (int64_t i = 0; i < n; i++)
        p[i] = (float)(first + i);
    return tutti_input(cx, (tutti_array){p, shape, TUTTI_F32});
}

/* [queries,keys]: 0 where a query sees a key, else -infinity */
static tutti_tensor *causal_mask(tutti_ctx *cx, const tutti__attention *a)
{
    tutti_tensor *last = numbers(cx, TUTTI_SHAPE(a->queries, 1), a->diagonal);
    tutti_tensor *keys = numbers(cx, TUTTI_SHAPE(1, a->keys), 0);

    return last && keys ? tutti_functional_log(tutti_ge(last, keys)) : &cx->out_of_memory;
}

tutti_tensor *tutti__attention_by_products(tutti_tensor *const *qkv, const tutti__attention *a,
                                           bool columns, tutti_shape result)
{
    const int64_t group = a->heads / a->kv_heads, n = a->batch, kv = a->kv_heads;
    tutti_tensor *q = qkv[0], *k = qkv[1], *v = qkv[2], *s, *y;

    if (!k) {
        tutti_tensor *all =
            tutti_reshape(q, TUTTI_SHAPE(n, a->queries, a->heads + 2 * kv, a->size));

        q = tutti_narrow(all, 2, 0, a->heads);
        k = tutti_narrow(all, 2, a->heads, kv);
        v = tutti_narrow(all, 2, a->heads + kv, kv);
    }
    q = with_groups(q, columns, n, kv, group, a->queries, a->size);
    k = with_groups(k, columns, n, kv, 1, a->keys, a->size);
    v = with_groups(v, columns, n, kv, 1, a->keys, a->v_size);
    s = tutti_matmul_with(q, k, &(tutti_matmul_opts){.transpose_b = true});
    s = tutti_scale(s, a->scale);
    if (a->causal)
        s = tutti_add(tutti_cast(s, TUTTI_F32), causal_mask(q->cx, a));
    y = tutti_matmul(tutti_softmax(s), v);
    return tutti_reshape(columns ? tutti_permute(y, TUTTI_DIMS(0, 3, 1, 2, 4)) : y, result);
}
