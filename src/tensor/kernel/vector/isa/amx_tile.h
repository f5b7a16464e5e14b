/* amx_tile.h -- the innermost part of products of BF16, by AMX's tiles.   SPDX-License-Identifier: MIT
 *
 * A tile register holds 16 rows of 64 bytes. An instruction adds to 16 x 16 sums in F32 the products of 16 rows of 16 pairs with 16
 * pairs of 16 columns, which are as half_tile.h packs them. Here 32 rows by PANEL columns are summed in four registers, so that each
 * factor that is loaded is used twice. Subnormal numbers count as 0, as with AVX-512's instructions; the sums' order differs from
 * theirs: even and odd numbers of the inner dimension are summed apart, up to 32 of them. */
#ifndef TUTTI_TENSOR_KERNEL_VECTOR_ISA_FOLDER_AMX_TILE_H
#define TUTTI_TENSOR_KERNEL_VECTOR_ISA_FOLDER_AMX_TILE_H

#include "tensor/kernel/vector/isa/half_tile.h"

#if defined TUTTI__HAS_BF16 && defined TUTTI__HAS_AMX
#include <immintrin.h>

#define AMX __attribute__((target("amx-tile,amx-bf16,avx512bf16,avx512bw,avx512vl")))
/* gcc 12's intrinsics do not say that they read memory: what is before this is stored. */
#define AMX_STORED() __asm__ volatile("" ::: "memory")
#define AMX_ROWS     32 /* of a tile of ours: two registers */
#define AMX_PAIRS    16 /* the inner dimension is filled up to a multiple of these by zeros */

/* Intel's layout of a palette, which says how many rows and bytes a row each register has. */
typedef struct amx_palette {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} amx_palette;

/* For tiles of n rows. */
AMX static void amx_palette_for(int64_t n)
{
    amx_palette p __attribute__((aligned(64))) = {.palette = 1};
    const uint8_t rows[8] = {[0] = (uint8_t)min(n, 16), [2] = (uint8_t)(n - 16), [6] = 16};

    for (int i = 0; i < 8; i++) {
        p.row_bytes[i] = 64;
        p.rows[i] = i >= 6 ? 16 : i == 4 ? rows[0] : i == 5 ? rows[2] : rows[i / 2 * 2];
        if (n <= 16 && (i == 2 || i == 3 || i == 5))
            p.rows[i] = 1; /* not used, but none may have no rows */
    }
    AMX_STORED();
    _tile_loadconfig(&p);
}

/* After the last product of a job. *begun_p: as amx_multiply has left it. */
AMX static void amx_end(int64_t *begun_p)
{
    if (*begun_p)
        _tile_release();
    *begun_p = 0;
}

/* c[rows][PANEL] = or += the sums of products. a is row by row; pairs is a multiple of AMX_PAIRS. *begun_p: rows for which the thread's
 * registers are set up; 0 at first. */
AMX static void amx_multiply(const half_tile *t, int64_t rows, int64_t *begun_p)
{
    const size_t a_step = (size_t)t->a_row * sizeof *t->a, b_step = PANEL * sizeof *t->b,
                 c_step = (size_t)t->c_row * sizeof *t->c;
    const uint16_t *a = t->a;
    const int32_t *b = t->b;
    float *const c = t->c, *const lower = c + 16 * t->c_row;
    const bool both = rows > 16;

    if (*begun_p != rows)
        amx_palette_for(rows);
    *begun_p = rows;
    AMX_STORED();
    if (t->add) {
        _tile_loadd(0, c, c_step);
        _tile_loadd(1, c + W, c_step);
    } else {
        _tile_zero(0);
        _tile_zero(1);
    }
    if (both && t->add) {
        _tile_loadd(2, lower, c_step);
        _tile_loadd(3, lower + W, c_step);
    } else {
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t k = 0; k < t->pairs; k += AMX_PAIRS, a += 2 * AMX_PAIRS, b += AMX_PAIRS * PANEL) {
        _tile_loadd(6, b, b_step);
        _tile_loadd(4, a, a_step);
        _tile_loadd(7, b + W, b_step);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        if (both) {
            _tile_loadd(5, a + 16 * t->a_row, a_step);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, c, c_step);
    _tile_stored(1, c + W, c_step);
    if (both) {
        _tile_stored(2, lower, c_step);
        _tile_stored(3, lower + W, c_step);
    }
}

#endif
#endif
