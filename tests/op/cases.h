/* cases.h -- a test program over a table of cases.   SPDX-License-Identifier: MIT
 * A test file is a comment, `#define CASES "op/cases_NAME.def"`, and this header. The table has rows
 *   CASE(name, call, sources...)              gradients against finite differences; agreement of every set of kernels
 *   REFUSED(name, message, call, sources...)  the call fails with ARG, and `message` is in the text
 *   LARGE(name, call, sources...)             timed by --time only
 * where `call` uses the sources in[0], in[1], ...: X uniform in (-1, 1); POS in (0.5, 1.5); FAR distinct and apart from 0; SIGN
 * around -5 and 5; W and P parameters (uniform, positive); Y integers from 0, below the second dimension of the first source; SCALAR;
 * NOTHING: absent. */
#include "op/rows.h"

/* clang-format off */
#define X(...)    {UNIFORM, S(__VA_ARGS__), false}
#define W(...)    {UNIFORM, S(__VA_ARGS__), true}
#define POS(...)  {POSITIVE, S(__VA_ARGS__), false}
#define P(...)    {POSITIVE, S(__VA_ARGS__), true}
#define FAR(...)  {APART, S(__VA_ARGS__), false}
#define SIGN(...) {SIGNED, S(__VA_ARGS__), false}
#define Y(...)    {LABELS, S(__VA_ARGS__), false}
#define SCALAR    {UNIFORM, {0, {0}}, false}
#define NOTHING   {NONE, {0, {0}}, false}
/* clang-format on */

#define CASE(name, call, ...)             BUILD(build_##name, call)
#define REFUSED(name, message, call, ...) BUILD(build_##name, call)
#define LARGE(name, call, ...)            BUILD(build_##name, call)
#include CASES
#undef CASE
#undef REFUSED
#undef LARGE

static const row rows[] = {
#define CASE(name, call, ...) {#name, build_##name, .in = {__VA_ARGS__}},
#define REFUSED(name, message, call, ...)                                                          \
    {#name, build_##name, .in = {__VA_ARGS__}, .error = message},
#define LARGE(name, call, ...) {#name, build_##name, .in = {__VA_ARGS__}, .large = true},
#include CASES
#undef CASE
#undef REFUSED
#undef LARGE
};

int main(int argc, char **argv)
{
    return run_rows(rows, TUTTI__COUNT_OF(rows), argc, argv);
}
