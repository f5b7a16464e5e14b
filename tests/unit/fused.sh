#!/bin/bash
# No function fuses products and sums or approximates a quotient or root, whatever it was compiled for, so that clones for
# several instruction sets give the same bits. Only Winograd, attention and matrix products may (multiply_add of isa/vector.h): the choice of
# one set is the choice of their bits; and peak.c, of which nothing but the time is used.   SPDX-License-Identifier: MIT
set -eu
objdump=$(sed -n 's/^CMAKE_OBJDUMP:FILEPATH=//p' "$BUILD_DIR/CMakeCache.txt")
command -v "$objdump" >/dev/null || { echo "skipped: no objdump (binutils)"; exit 77; }
machine=$("$objdump" -f "$BUILD_DIR/tutti" | sed -n 's/^architecture: \([^,]*\).*/\1/p')
case $machine in
*x86[-_]64*) unwanted='^v?(fn?m(add|sub|addsub|subadd)[0-9]|r(cp|sqrt)(14|28)?[ps]s)' ;;
aarch64) unwanted='^(fn?m(add|sub)|fml[as]l?2?|frecp[esx]|frsqrt[es])$' ;;
*) echo "skipped: the instructions looked for are those of x86-64 and arm64, this is $machine"; exit 77 ;;
esac

failed=0 seen=0
for library in "$BUILD_DIR"/layers/lib*.a; do
    found=$("$objdump" -d --no-show-raw-insn "$library" | awk -v unwanted="$unwanted" '
        /[[:space:]]file format / { object = $1; gsub(/^.*\(|\)?:$/, "", object); objects++ } # llvm-objdump: lib.a(x.o):
        /^[0-9a-f]+ <.*>:$/ { where = $2 }
        object !~ /^((winograd|product|(half_)?attention)_(base|avx2|avx512)|peak)\.c\.o$/ && $2 ~ unwanted {
            if (!told[object where]++) print "    " object " " where " " $2
        }
        END { print "objects", objects }')
    seen=$((seen + $(awk '$1 == "objects" { print $2 }' <<<"$found")))
    grep -v '^objects' <<<"$found" && failed=1
done
[ "$seen" -gt 100 ] || { echo "looked at $seen objects in $BUILD_DIR/layers: too few"; exit 1; }
exit $failed
