/* A bar's text in windows of all widths; times in words.   SPDX-License-Identifier: MIT */
#include "base/terminal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const char *const FIELDS[] = {"loss 0.1234", "0:07 left", "455 images/s", "step 12/360"};

static const char *bar(int width, double fraction)
{
    static char text[512];

    tutti__bar_text(text, sizeof text, width, "epoch 1/8", fraction, FIELDS, 4);
    return text;
}

/* At any width the text fits, and each field is complete or absent. */
static void fits(void **state)
{
    (void)state;
    for (int width = 0; width < 300; width++) {
        const char *text = bar(width, 0.5);

        assert_true((int)strlen(text) <= width);
        for (size_t i = 0; i < TUTTI__COUNT_OF(FIELDS); i++) {
            const char *two = strstr(text, "  ");
            char first[6];

            snprintf(first, sizeof first, "%.5s", FIELDS[i]);
            assert_true(!two || !strstr(text, first) || strstr(text, FIELDS[i]));
        }
    }
}

static void keeps_what_matters(void **state)
{
    (void)state;
    assert_string_equal(bar(39, 0), "epoch 1/8  loss 0.1234  0:07 left");
    assert_string_equal(bar(79, 0.5),
                        "epoch 1/8 [========        ]  loss 0.1234  0:07 left  455 images/s"
                        "  step 12/360");
    assert_string_equal(bar(57, 0.5), "epoch 1/8 [===    ]  loss 0.1234  0:07 left  455 images/s");
    assert_string_equal(bar(44, 0.5), "epoch 1/8 [====    ]  loss 0.1234  0:07 left");
    assert_string_equal(bar(5, 0.5), "epoch");
}

/* From none to all cells, for any fraction. */
static void fraction_is_bounded(void **state)
{
    (void)state;
    assert_null(strchr(bar(120, 0), '='));
    assert_null(strchr(bar(120, -1), '='));
    assert_null(strchr(bar(120, 0.0 / 0.0), '='));
    assert_string_equal(bar(120, 1), bar(120, 7));
    assert_non_null(strstr(bar(120, 1), "[========================================]"));
}

static void times(void **state)
{
    static const struct {
        double seconds;
        const char *text;
    } rows[] = {{-1, "0:00"},      {6.6, "0:07"},           {754, "12:34"},
                {3723, "1:02:03"}, {90061, "1 d 01:01:01"}, {1e300, "0:00"},
                {59.7, "1:00"}};

    (void)state;
    for (size_t i = 0; i < TUTTI__COUNT_OF(rows); i++) {
        char text[24];

        tutti__time_text(rows[i].seconds, text);
        assert_string_equal(text, rows[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(fits), cmocka_unit_test(keeps_what_matters),
                                       cmocka_unit_test(fraction_is_bounded),
                                       cmocka_unit_test(times)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
