#!/bin/bash
# tools/check-layers passes on the source, and fails, naming the file, on an include that crosses a layer or a room of
# communication or the launcher, on one that is private, on a clock in what only decides, on files that include each other in a circle,
# on two types of one name, and on a file or a function that is too long.
set -eu
cd "$SOURCE_DIR"
tools/check-layers
if command -v python3 >/dev/null; then # nor does a file call another that calls it
    tools/structure base comm elastic train launch cli | awk '/^[a-z]+:/ { layer = $1 } /circles/ && $5 != 0 { print layer $0; found = 1 } END { exit found }'
fi

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
mkdir -p "$copy/src/launch/message" "$copy/src/base" "$copy/src/tensor" "$copy/src/ddp" "$copy/src/reducer" "$copy/src/comm/core" "$copy/src/comm/control" "$copy/src/comm/transport"

refused() { # FILE HEADER WORDS: that include is refused with these words; the file goes again
    echo "#include \"$2\"" >"$copy/src/$1"
    ! tools/check-layers "$copy" >"$copy/out" || { echo "$1 may include $2"; exit 1; }
    grep -q "$3" "$copy/out" || { echo "not told: $3"; cat "$copy/out"; exit 1; }
    rm "$copy/src/$1"
}
echo '#include "comm/comm.h"' >"$copy/src/ddp/allowed.c"
echo '#include "comm/comm.h"' >"$copy/src/reducer/allowed.c"
echo '#include "comm/core/below.h"' >"$copy/src/comm/transport/allowed.c"
tools/check-layers "$copy"
refused base/upward.c tensor/op.h 'src/base/upward.c:1.*base may not include tensor/'
refused tensor/sideways.c comm/comm.h 'src/tensor/sideways.c:1.*tensor may not include comm/'
refused tensor/sideways.c reducer/reducer.h 'src/tensor/sideways.c:1.*tensor may not include reducer/'
refused reducer/sideways.c tensor/tensor.h 'src/reducer/sideways.c:1.*reducer may not include tensor/'
refused comm/upward.c reducer/reducer.h 'src/comm/upward.c:1.*comm may not include reducer/'
refused ddp/inside.c comm/group.h 'src/ddp/inside.c:1.*private'
refused ddp/inside.c comm/transport/wire.h 'src/ddp/inside.c:1.*private'
refused comm/control/upward.h comm/transport/wire.h 'src/comm/control/upward.h:1.*control may not include comm/transport/'
refused comm/core/upward.c comm/group.h 'src/comm/core/upward.c:1.*of src/comm itself'
refused launch/message/upward.c launch/process/worker.h 'src/launch/message/upward.c:1.*message may not include launch/process/'
mkdir "$copy/src/launch/decide"
for line in '#include <poll.h>' 'double f(void) { return tutti__now_ms(); }'; do
    echo "$line" >"$copy/src/launch/decide/impure.c"
    ! tools/check-layers "$copy" >"$copy/out" || { echo "src/launch/decide may have $line"; exit 1; }
    grep -q 'src/launch/decide/impure.c:1.*what only decides' "$copy/out" || { cat "$copy/out"; exit 1; }
done
rm -r "$copy/src/launch/decide"

mkdir "$copy/src/comm/unknown"
refused comm/core/whatever.h base/base.h 'src/comm/unknown.*not a room of comm'
rmdir "$copy/src/comm/unknown"

twice() { # DEFINITION DEFINITION: two files may not give one name to two types
    printf "$1\n" >"$copy/src/comm/core/link.h"
    printf "$2\n" >"$copy/src/base/link.h"
    refused base/whatever.c base/link.h 'tutti__link: defined more than once: src/base/link.h src/comm/core/link.h'
    rm "$copy/src/comm/core/link.h" "$copy/src/base/link.h"
}
twice 'struct tutti__link {' 'typedef struct tutti__link {'
twice 'struct tutti__link {' 'enum tutti__link {'
twice 'typedef struct {\n    int n;\n} tutti__link;' 'typedef enum tutti__link {\n    ONE\n} tutti__link;'
twice 'typedef void tutti__link(int n);' 'typedef int tutti__link;'
twice 'typedef void (*tutti__link)(int n);' 'union tutti__link {'
for file in comm/core/b.h base/c.h; do # one is defined, and declared everywhere
    printf 'struct tutti__link;\ntypedef struct tutti__link tutti__link;\n' >"$copy/src/$file"
done
echo 'struct tutti__link {' >"$copy/src/base/link.h"
tools/check-layers "$copy"
rm "$copy/src/comm/core/b.h" "$copy/src/base/c.h" "$copy/src/base/link.h"

lines() { # N: so many lines
    yes '    n++;' | head -n "$1"
}
{ lines 699; echo 'int last;'; } >"$copy/src/base/long.h"
{ printf 'void f(void)\n{\n'; lines 58; printf '}\nstatic struct s t = {\n'; lines 100; echo '};'; } >"$copy/src/base/long.c"
tools/check-layers "$copy"
echo 'int more;' >>"$copy/src/base/long.h"
refused base/whatever.c base/link.h 'src/base/long.h: longer than 700 lines'
{ printf 'void f(void)\n{\n'; lines 59; echo '}'; } >"$copy/src/base/long.c"
refused base/whatever.c base/link.h 'src/base/long.c:2: a function of 61 lines'
rm "$copy/src/base/long.h" "$copy/src/base/long.c"

echo '#include "launch/message/b.h"' >"$copy/src/launch/message/b_parts.h" # both are part of b
tools/check-layers "$copy"
echo '#include "comm/core/b.h"' >"$copy/src/comm/core/a.h"
echo '#include "comm/core/a.h"' >"$copy/src/comm/core/b.c"
refused comm/core/b.h comm/core/b.h 'circle'
