#!/bin/bash
# The shared libraries export what tools/exports records, under a version; tools/check-exports names a difference and the
# command that records it.   SPDX-License-Identifier: MIT
set -eu
cd "$SOURCE_DIR"
tools/check-exports "$BUILD_DIR"
grep -q '^tutti_ctx_new TUTTI_0.1$' tools/exports/*.txt
! grep -hv '^tutti_[a-z]' tools/exports/*.txt || { echo "recorded: not a public name"; exit 1; }

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
mkdir "$copy/tools"
cp -r tools/check-exports tools/exports "$copy/tools"
mkdir -p "$copy/src/tensor/op"
cp src/tensor/op/ops.def "$copy/src/tensor/op"
sed -i 's/^tutti_ctx_new /tutti_ctx_knew /' "$copy"/tools/exports/*.txt
! "$copy/tools/check-exports" "$BUILD_DIR" >"$copy/out" || { echo "another list passed"; exit 1; }
for line in '< tutti_ctx_knew TUTTI_0.1' '> tutti_ctx_new TUTTI_0.1' 'tools/check-exports --record'; do
    grep -q -e "$line" "$copy/out" || { cat "$copy/out"; echo "it does not say: $line"; exit 1; }
done
"$copy/tools/check-exports" --record "$BUILD_DIR"
cmp "$copy"/tools/exports/tutti.txt tools/exports/tutti.txt
