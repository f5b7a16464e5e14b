/* formula.cu -- elementwise operations: kernels of the rows of op/elementwise.def.   SPDX-License-Identifier: MIT */
#include "tensor/kernel/cuda/module/arrays.cuh"
#include "tensor/kernel/cuda/module/families.cuh"
#include "tensor/op/formulas.h"
#include <tutti/op.h>

static constexpr int SOURCES = TUTTI__CUDA_MAX_SOURCES;

/* Of one element: what the expressions of a row name. */
struct Element {
    float source[SOURCES], y, d, k0, k1;
};

#define NAMES                                                                                      \
    const float a = of.source[0], b = of.source[1], c = of.source[2], e = of.source[3];            \
    const float y = of.y, d = of.d, k0 = of.k0, k1 = of.k1;                                        \
                                                                                                   \
    (void)a, (void)b, (void)c, (void)e, (void)y, (void)d, (void)k0, (void)k1;

#define OWN_ROW(name, sources, reads_, forward, da, db, dc, dd)                                    \
    struct Row_##name {                                                                            \
        static constexpr int count = sources;                                                      \
        static constexpr unsigned reads = reads_;                                                  \
        METHOD static float value(const Element &of)                                               \
        {                                                                                          \
            NAMES return (float)(forward);                                                         \
        }                                                                                          \
        template <int K>                                                                           \
        METHOD static float gradient(const Element &of)                                            \
        {                                                                                          \
            NAMES return K == 0 ? (float)(da)                                                      \
            : K == 1            ? (float)(db)                                                      \
            : K == 2            ? (float)(dc)                                                      \
                                : (float)(dd);                                                                \
        }                                                                                          \
    };
#define ROW(name, sources, reads, forward, da, db, dc)                                             \
    OWN_ROW(name, sources, reads, forward, da, db, dc, 0)
#include "tensor/op/elementwise.def"
#undef ROW
#undef OWN_ROW

/* The elements from i on of source k. */
template <int V>
DEVICE Lanes<V> source(const tutti__cuda_elements &e, int k, int64_t i)
{
    Lanes<V> v;

    if (!e.src[k].p) {
        for (int l = 0; l < V; l++)
            v[l] = 1;
        return v;
    }
    /* Several at once are flat (may_vectorise); nvcc is slow at code for them that is not. */
    if (V > 1 || e.flat)
        return load_of<V>(e.src[k], i);
    for (int l = 0; l < V; l++)
        v[l] = element(e.src[k], strided(i + l, e.n_dims, e.size, e.stride[k]));
    return v;
}

template <class Row>
struct Forward {
    tutti__cuda_elements e;
    tutti__cuda_array y;
    template <int V>
    METHOD void run(int64_t i) const
    {
        Lanes<V> s[SOURCES] = {}, result;

        for (int k = 0; k < Row::count; k++)
            s[k] = source<V>(e, k, i);
        for (int l = 0; l < V; l++)
            result[l] = Row::value(
                {{s[0][l], s[1][l], s[2][l], s[3][l]}, 0, 0, e.constants[0], e.constants[1]});
        store_to<V>(y, i, result);
    }
};

template <class Row, int K>
struct Backward {
    tutti__cuda_elements e;
    tutti__cuda_array dx, dy, y;
    template <int V>
    METHOD void run(int64_t i) const
    {
        const Lanes<V> d = load_of<V>(dy, i);
        Lanes<V> s[SOURCES] = {}, result_y = {}, result;

        for (int k = 0; k < Row::count; k++)
            if (Row::reads >> k & 1)
                s[k] = source<V>(e, k, i);
        if constexpr ((Row::reads & TUTTI_OP_RESULT) != 0)
            result_y = load_of<V>(y, i);
        for (int l = 0; l < V; l++)
            result[l] = Row::template gradient<K>({{s[0][l], s[1][l], s[2][l], s[3][l]},
                                                   result_y[l],
                                                   d[l],
                                                   e.constants[0],
                                                   e.constants[1]});
        store_to<V>(dx, i, result);
    }
};

static bool may_vectorise(const tutti__cuda_elements *e)
{
    return e->flat && aligned(e->src[0].p, e->src[1].p, e->src[2].p, e->src[3].p);
}

/* f(Row{}) with the row of a formula. */
template <class F>
static tutti_status with_row(tutti__formula formula, const F &f)
{
    switch (formula) {
#define ROW(name, ...)                                                                             \
    case TUTTI__FORMULA_##name:                                                                    \
        return f(Row_##name{});
#define OWN_ROW(...) ROW(__VA_ARGS__)
#include "tensor/op/elementwise.def"
#undef ROW
#undef OWN_ROW
    default:
        return tutti__cuda_fail(TUTTI_ERR_UNSUPPORTED, "a formula that this module lacks");
    }
}

tutti_status tutti__own_formula(int device, void *stream, tutti__cuda_array y,
                                const tutti__cuda_elements *e)
{
    return with_row(e->formula, [=](auto row) {
        return map(device, stream, Forward<decltype(row)>{*e, y}, e->n,
                   may_vectorise(e) && aligned(y.p));
    });
}

template <class Row, int K>
static tutti_status backward(int device, void *stream, tutti__cuda_array dx, int source_,
                             tutti__cuda_array dy, tutti__cuda_array y,
                             const tutti__cuda_elements *e)
{
    if constexpr (K + 1 < Row::count)
        if (source_ != K)
            return backward<Row, K + 1>(device, stream, dx, source_, dy, y, e);
    return map(device, stream, Backward<Row, K>{*e, dx, dy, y}, e->n,
               may_vectorise(e) && aligned(dx.p, dy.p, y.p));
}

tutti_status tutti__own_formula_backward(int device, void *stream, tutti__cuda_array dx,
                                         int source_, tutti__cuda_array dy, tutti__cuda_array y,
                                         const tutti__cuda_elements *e)
{
    return with_row(e->formula, [=](auto row) {
        return backward<decltype(row), 0>(device, stream, dx, source_, dy, y, e);
    });
}
