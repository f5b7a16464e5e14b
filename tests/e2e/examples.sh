# Each example runs alone and with two ranks; losses fall, and agree where they must.   SPDX-License-Identifier: MIT
# timeout: 240
set -u
examples=$BUILD_DIR/examples
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0

fail() {
    echo "FAIL: $*"
    failures=$((failures + 1))
}

if [ ! -x "$TUTTI" ]; then
    echo "skipped: $TUTTI is not built"
    exit 77
fi

# run NAME RANKS ARGS...: output in $folder/NAME.RANKS; fails unless the exit code is 0 and nothing is on standard error
run() {
    name=$1 ranks=$2
    shift 2
    if [ "$ranks" = alone ]; then
        timeout 100 "$examples/example_$name" "$@" >"$folder/$name.$ranks" 2>"$folder/errors"
    else
        timeout 100 "$TUTTI" run -n "$ranks" "$examples/example_$name" "$@" >"$folder/$name.$ranks" 2>"$folder/errors"
    fi
    code=$?
    [ $code = 0 ] || fail "$name, $ranks: exit code $code: $(cat "$folder/errors")"
    sed "s/^/$name, $ranks: /" "$folder/$name.$ranks"
}

losses() { # NAME RANKS: one a line
    sed -n 's/.*loss \([0-9.]*\).*/\1/p' "$folder/$1.$2"
}

falls() { # NAME RANKS: the last loss is below FACTOR times the first
    losses "$1" "$2" | awk -v factor="$3" 'NR == 1 { first = $1 } { last = $1 }
        END { exit !(NR > 0 && last < factor * first) }' || fail "$1, $2: the loss does not fall enough"
}

same() { # NAME RANKS RANKS COUNT: both have COUNT losses, equal to a last digit
    paste -d ' ' <(losses "$1" "$2") <(losses "$1" "$3") | awk -v count="$4" '
        NF != 2 { bad = 1 } { d = $1 - $2; if (d < 0) d = -d; if (d > 2e-6 + 1e-5 * $1) bad = 1 }
        END { exit bad || NR != count }' || fail "$1: losses differ between $2 and $3"
}

for ranks in alone 1 2; do
    run linear_regression $ranks
    falls linear_regression $ranks 0.1
    run bring_your_own_gradients $ranks
    falls bring_your_own_gradients $ranks 0.5
done
for name in linear_regression bring_your_own_gradients; do
    same $name alone 1 5
    same $name alone 2 5
done

[ $failures = 0 ] && echo "examples: all runs as expected"
exit $((failures != 0))
