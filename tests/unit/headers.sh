#!/bin/bash
# The public headers are C11 and C++11 without a warning at -pedantic: tools/check-headers passes, and fails on one that is not.
# timeout: 180
# SPDX-License-Identifier: MIT
set -eu
cd "$SOURCE_DIR"
tools/check-headers

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

# TUTTI_ZERO is still there where a compiler may take -0 for 0 and small numbers for nothing.
cat >"$copy/zero.c" <<'END'
#include <tutti/tutti.h>
int main(int argc, char **argv)
{
    tutti_sgd_opts literal = {.lr = TUTTI_ZERO}, chosen = {.lr = argc > 1 ? (float)atof(argv[1]) : TUTTI_ZERO};
    static const tutti_sgd_opts zero;
    return !memcmp(&literal, &zero, sizeof zero) || memcmp(&literal, &chosen, sizeof zero);
}
END
for compiler in gcc clang; do
    command -v $compiler >/dev/null || continue
    $compiler -Ofast -include string.h -Iinclude -o "$copy/zero" "$copy/zero.c"
    "$copy/zero" || { echo "TUTTI_ZERO is lost by $compiler -Ofast"; exit 1; }
done
mkdir "$copy/tools" "$copy/include"
cp tools/check-headers "$copy/tools"
cp -r include/tutti "$copy/include"
echo 'static inline tutti_shape one(void) { return (tutti_shape){1, {1}}; }' >>"$copy/include/tutti/nn.h" # C alone
if command -v g++ >/dev/null || command -v clang++ >/dev/null; then
    ! "$copy/tools/check-headers" include/tutti/nn.h >"$copy/out" 2>&1 || { echo "a compound literal passed as C++"; exit 1; }
    grep -q 'check-headers: include/tutti/nn.h with .*++' "$copy/out"
fi
