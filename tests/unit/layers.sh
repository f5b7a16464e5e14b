#!/bin/bash
# tools/check-layers passes on the source, and fails, naming file and layer, on an include that crosses a layer.
set -eu
cd "$SOURCE_DIR"
tools/check-layers

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
mkdir "$copy/tools" "$copy/src" "$copy/src/base" "$copy/src/tensor" "$copy/src/comm" "$copy/src/ddp"
cp tools/check-layers "$copy/tools"
echo '#include "comm/group.h"' >"$copy/src/ddp/allowed.c"
"$copy/tools/check-layers"
echo '#include "tensor/op.h"' >"$copy/src/base/upward.c"
! "$copy/tools/check-layers" >"$copy/out" || { echo "an upward include passed"; exit 1; }
grep -q 'src/base/upward.c:1.*base may not include tensor/' "$copy/out"
rm "$copy/src/base/upward.c"
echo '#include "comm/group.h"' >"$copy/src/tensor/sideways.c"
! "$copy/tools/check-layers" >"$copy/out" || { echo "tensor saw comm"; exit 1; }
