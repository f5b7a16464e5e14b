/* train_views.c -- views of test-time augmentation, against padding and cropping by hand.   SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train/session/views.h"

enum { N = 2, C = 3, H = 5, W = 4 };

static float image[N][C][H][W], view[N][C][H][W];

static void fill(void)
{
    float *p = &image[0][0][0][0];

    for (int i = 0; i < N * C * H * W; i++)
        p[i] = (float)(i * i % 997);
}

/* The image padded by one reflected pixel, cropped at (top, left), and mirrored. */
static float expected(int n, int c, int i, int j, int top, int left, bool mirrored)
{
    const int row = i + top, column = (mirrored ? W - 1 - j : j) + left;
    float padded[H + 2][W + 2];

    for (int a = 0; a < H + 2; a++)
        for (int b = 0; b < W + 2; b++) {
            const int y = a == 0 ? 1 : a == H + 1 ? H - 2 : a - 1;
            const int x = b == 0 ? 1 : b == W + 1 ? W - 2 : b - 1;

            padded[a][b] = image[n][c][y][x];
        }
    return padded[row][column];
}

static void check(const tutti__view *v, int top, int left, bool mirrored, float weight)
{
    const tutti_array x = {image, TUTTI_SHAPE(N, C, H, W), TUTTI_F32};

    assert_true(v->weight == weight);
    tutti__view_make(v, x, &view[0][0][0][0]);
    for (int k = 0; k < N * C * H * W; k++) {
        const int n = k / (C * H * W), c = k / (H * W) % C, i = k / W % H, j = k % W;

        assert_true(view[n][c][i][j] == expected(n, c, i, j, top, left, mirrored));
    }
}

static void views_are_those_of_airbench(void **state)
{
    const tutti__view *v;
    size_t n;

    (void)state;
    fill();
    v = tutti__views_of(0, &n);
    assert_int_equal(n, 1);
    check(&v[0], 1, 1, false, 1);
    v = tutti__views_of(1, &n);
    assert_int_equal(n, 2);
    check(&v[0], 1, 1, false, 0.5f);
    check(&v[1], 1, 1, true, 0.5f);
    v = tutti__views_of(2, &n);
    assert_int_equal(n, 6);
    for (size_t k = 0; k < n; k++) {
        const int at = k < 2 ? 1 : k < 4 ? 0 : 2;

        check(&v[k], at, at, k % 2, k < 2 ? 0.25f : 0.125f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(views_are_those_of_airbench)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
