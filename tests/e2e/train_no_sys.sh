#!/bin/bash
# Without /sys, as in a chroot, ranks train unpinned, without messages from hwloc.
set -euo pipefail
unshare -rm true 2>/dev/null || { echo "skipped: no mount namespaces here"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unshare -rm sh -c 'mount -t tmpfs none /sys && exec "$@"' sh \
    "$TUTTI" train -n 2 --data synthetic --model linear --max-steps 2 --run-dir "$dir/run" >"$dir/out" 2>&1 ||
    { grep -q 'mount:' "$dir/out" && echo "skipped: /sys cannot be covered here" && exit 77; cat "$dir/out"; exit 1; }
grep -q '"status": "completed"' "$dir/run/summary.json"
if grep -i hwloc "$dir/out"; then exit 1; fi
if ldd "$TUTTI" | grep -q libhwloc; then
    status=0
    unshare -rm sh -c 'mount -t tmpfs none /sys && exec "$@"' sh "$TUTTI" run -n 2 --numa-binding node true >"$dir/numa" 2>&1 || status=$?
    [ $status -ne 0 ] && grep -q 'mount /sys' "$dir/numa" && ! grep -q 'hwloc/' "$dir/numa" || { cat "$dir/numa"; exit 1; }
fi
