/* fold.cu -- sums and the like over some of the dimensions.   SPDX-License-Identifier: MIT
 *
 * In two passes: each part of what is folded into one element, by a warp or a block; then the parts, in order. If the last dimension
 * is kept, a block takes WARP neighbours along it, so that its reads lie side by side. */
#include "device/cuda/module/reduce.cuh"
#include "tensor/kernel/cuda/module/arrays.cuh"
#include "tensor/kernel/cuda/module/families.cuh"
#include "tensor/kernel/cuda/module/groups.cuh"
#include "tensor/op/formulas.h"

static constexpr int64_t PART = 4096; /* elements of a part, at least */
static constexpr int64_t PARTS = 256; /* at most */

struct FoldSum {
    METHOD static double start()
    {
        return 0;
    }
    METHOD static double step(double t, double v, double, int64_t)
    {
        return t + v;
    }
    METHOD double operator()(double t, double u) const
    {
        return t + u;
    }
};
struct FoldSquares : FoldSum {
    METHOD static double step(double t, double v, double g, int64_t)
    {
        return t + (v - g) * (v - g);
    }
};
struct FoldExps : FoldSum {
    METHOD static double step(double t, double v, double g, int64_t)
    {
        return t + tutti__exp_less(v, g);
    }
};
struct FoldMax {
    METHOD static double start()
    {
        return -(double)INFINITY;
    }
    METHOD static double step(double t, double v, double, int64_t)
    {
        return t != t ? t : v <= t ? t : v;
    }
    METHOD double operator()(double t, double u) const
    {
        return step(t, u, 0, 0);
    }
};
struct FoldMin {
    METHOD static double start()
    {
        return (double)INFINITY;
    }
    METHOD static double step(double t, double v, double, int64_t)
    {
        return t != t ? t : v >= t ? t : v;
    }
    METHOD double operator()(double t, double u) const
    {
        return step(t, u, 0, 0);
    }
};
struct FoldProduct {
    METHOD static double start()
    {
        return 1;
    }
    METHOD static double step(double t, double v, double, int64_t)
    {
        return t * v;
    }
    METHOD double operator()(double t, double u) const
    {
        return t * u;
    }
};
struct FoldCount : FoldSum {
    METHOD static double step(double t, double v, double, int64_t)
    {
        return t + (v != 0);
    }
};
struct FoldMagnitudes : FoldSum {
    METHOD static double step(double t, double v, double, int64_t)
    {
        return t + fabs(v);
    }
};
struct FoldPowers : FoldSum {
    METHOD static double step(double t, double v, double g, int64_t)
    {
        return t + tutti__magnitude_power(fabs(v), g);
    }
};
struct FoldEqual : FoldSum {
    METHOD static double step(double t, double v, double g, int64_t)
    {
        return t + (v == g);
    }
};
struct FoldEqualSizes : FoldSum {
    METHOD static double step(double t, double v, double g, int64_t)
    {
        return t + (fabs(v) == g);
    }
};
struct FoldLargest : FoldMax {
    METHOD static double start()
    {
        return 0;
    }
    METHOD static double step(double t, double v, double g, int64_t i)
    {
        return FoldMax::step(t, fabs(v), g, i);
    }
};
struct FoldSmallest : FoldMin {
    METHOD static double step(double t, double v, double g, int64_t i)
    {
        return FoldMin::step(t, fabs(v), g, i);
    }
};
/* numbers up to 2^53 are exact */
struct FoldFirst : FoldMin {
    METHOD static double step(double t, double v, double g, int64_t i)
    {
        return (v == g || v != v) && (double)i < t ? (double)i : t;
    }
};

BOTH bool keeps_last(const tutti__cuda_fold &f)
{
    return f.n_kept > 0 && f.kept_stride[f.n_kept - 1] == 1 && f.kept_size[f.n_kept - 1] > 1 &&
           f.folded > 1;
}

static int64_t parts_of(const tutti__cuda_fold *f)
{
    const int64_t parts = blocks_of(f->folded, keeps_last(*f) ? PART / WARP : PART);

    return parts < 1 ? 1 : parts < PARTS ? parts : PARTS;
}

DEVICE double given_for(const tutti__cuda_fold &f, int64_t kept)
{
    return f.given ? (double)f.given[kept] : f.power;
}

DEVICE int64_t kept_at(const tutti__cuda_fold &f, int64_t kept)
{
    return strided(kept, f.n_kept, f.kept_size, f.kept_stride);
}

DEVICE int64_t folded_at(const tutti__cuda_fold &f, int64_t i)
{
    return strided(i, f.n_folded, f.folded_size, f.folded_stride);
}

/* A group of G threads for each part; of an element, G * parts threads. */
template <class Fold, int G>
KERNEL void fold_kernel(const tutti__cuda_fold f, const tutti__cuda_array from, double *partial,
                        const int64_t parts, const int64_t length)
{
    Own<double> total;

    EACH_THREAD(t)
    {
        const int64_t at = row_of<G>(t), kept = at / parts;
        double all = Fold::start();

        if (kept < f.kept) {
            const int64_t first = at % parts * length, start = kept_at(f, kept);
            const int64_t end = first + length < f.folded ? first + length : f.folded;
            const double g = given_for(f, kept);

            for (int64_t i = first + t % G; i < end; i += G)
                all = Fold::step(all, (double)element(from, start + folded_at(f, i)), g, i);
        }
        total[t] = all;
    }
    reduce<G>(total, Fold());
    EACH_THREAD(t)
    {
        const int64_t at = row_of<G>(t);

        if (t % G == 0 && at / parts < f.kept)
            partial[at % parts * f.kept + at / parts] = total[t];
    }
}

/* A block for WARP neighbours and a part. */
template <class Fold>
KERNEL void fold_columns_kernel(const tutti__cuda_fold f, const tutti__cuda_array from,
                                double *partial, const int64_t parts, const int64_t length)
{
    SHARED double rows[THREADS / WARP][WARP];

    EACH_THREAD(t)
    {
        const int64_t kept = block_index() / parts * WARP + t % WARP;
        double all = Fold::start();

        if (kept < f.kept) {
            const int64_t first = block_index() % parts * length, start = kept_at(f, kept);
            const int64_t end = first + length < f.folded ? first + length : f.folded;
            const double g = given_for(f, kept);

            for (int64_t i = first + t / WARP; i < end; i += THREADS / WARP)
                all = Fold::step(all, (double)element(from, start + folded_at(f, i)), g, i);
        }
        rows[t / WARP][t % WARP] = all;
    }
    block_barrier();
    EACH_THREAD(t)
    {
        const int64_t kept = block_index() / parts * WARP + t % WARP;

        if (t < WARP && kept < f.kept) {
            double all = rows[0][t];

            for (int i = 1; i < THREADS / WARP; i++)
                all = Fold()(all, rows[i][t]);
            partial[block_index() % parts * f.kept + kept] = all;
        }
    }
}

template <class Fold>
struct Finish {
    tutti__cuda_fold f;
    tutti__cuda_array to;
    const double *partial;
    int64_t parts;
    template <int V>
    METHOD void run(int64_t i) const
    {
        Lanes<V> result;

        for (int l = 0; l < V; l++) {
            double all = partial[i + l];

            for (int64_t k = 1; k < parts; k++)
                all = Fold()(all, partial[k * f.kept + i + l]);
            if (f.kind == TUTTI__FOLD_EXPS) {
                const double g = given_for(f, i + l);

                all = fabs(g) == (double)INFINITY ? g : g + tutti__log_normal(all);
            } else if (f.kind == TUTTI__FOLD_SUM || f.kind == TUTTI__FOLD_SQUARES) {
                all /= f.divisor;
            } else if (f.kind == TUTTI__FOLD_POWERS) {
                all = tutti__magnitude_power(all, 1 / f.power);
            }
            if (to.dtype == TUTTI_I64) /* V is 1 */
                ((int64_t *)to.p)[i + l] = (int64_t)all;
            result[l] = (float)(f.root ? sqrt(all) : all);
        }
        if (to.dtype != TUTTI_I64)
            store_to<V>(to, i, result);
    }
};

size_t tutti__own_fold_scratch(const tutti__cuda_fold *f)
{
    return (size_t)(parts_of(f) * f->kept) * sizeof(double);
}

template <class Fold>
static tutti_status fold(int device, void *stream, tutti__cuda_array to, tutti__cuda_array from,
                         const tutti__cuda_fold *f, double *partial)
{
    const int64_t parts = parts_of(f), length = blocks_of(f->folded, parts);
    tutti_status status;

    if (keeps_last(*f))
        status = launch(device, stream, blocks_of(f->kept, WARP) * parts, fold_columns_kernel<Fold>,
                        *f, from, partial, parts, length);
    else if (length < LONG)
        status = launch(device, stream, blocks_of(f->kept * parts, THREADS / WARP),
                        fold_kernel<Fold, WARP>, *f, from, partial, parts, length);
    else
        status = launch(device, stream, f->kept * parts, fold_kernel<Fold, THREADS>, *f, from,
                        partial, parts, length);
    if (status != TUTTI_OK)
        return status;
    return map(device, stream, Finish<Fold>{*f, to, partial, parts}, f->kept, false);
}

tutti_status tutti__own_fold(int device, void *stream, tutti__cuda_array to, tutti__cuda_array from,
                             const tutti__cuda_fold *f, void *scratch)
{
    double *partial = (double *)scratch;

    switch (f->kind) {
    case TUTTI__FOLD_SUM:
        return fold<FoldSum>(device, stream, to, from, f, partial);
    case TUTTI__FOLD_SQUARES:
        return fold<FoldSquares>(device, stream, to, from, f, partial);
    case TUTTI__FOLD_EXPS:
        return fold<FoldExps>(device, stream, to, from, f, partial);
    case TUTTI__FOLD_MAX:
        return fold<FoldMax>(device, stream, to, from, f, partial);
    case TUTTI__FOLD_MIN:
        return fold<FoldMin>(device, stream, to, from, f, partial);
    case TUTTI__FOLD_PRODUCT:
        return fold<FoldProduct>(device, stream, to, from, f, partial);
    case TUTTI__FOLD_COUNT:
        return fold<FoldCount>(device, stream, to, from, f, partial);
    case TUTTI__FOLD_MAGNITUDES:
        return fold<FoldMagnitudes>(device, stream, to, from, f, partial);
    case TUTTI__FOLD_POWERS:
        return fold<FoldPowers>(device, stream, to, from, f, partial);
    case TUTTI__FOLD_LARGEST:
        return fold<FoldLargest>(device, stream, to, from, f, partial);
    case TUTTI__FOLD_SMALLEST:
        return fold<FoldSmallest>(device, stream, to, from, f, partial);
    case TUTTI__FOLD_EQUAL:
        return fold<FoldEqual>(device, stream, to, from, f, partial);
    case TUTTI__FOLD_EQUAL_SIZES:
        return fold<FoldEqualSizes>(device, stream, to, from, f, partial);
    case TUTTI__FOLD_FIRST:
        return fold<FoldFirst>(device, stream, to, from, f, partial);
    default:
        return tutti__cuda_fail(TUTTI_ERR_UNSUPPORTED, "a fold that this module lacks");
    }
}
