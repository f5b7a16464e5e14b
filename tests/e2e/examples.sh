# Each example runs alone and with two ranks; losses decrease, and agree where they must.   SPDX-License-Identifier: MIT
# timeout: 240
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
examples=$BUILD_DIR/examples
folder=$work

# run NAME RANKS ARGS...: output in $folder/NAME.RANKS; fails unless the exit code is 0 and nothing is on standard error
run() {
    name=$1 ranks=$2
    shift 2
    if [ "$ranks" = alone ]; then
        timeout 300 "$examples/example_$name" "$@" >"$folder/$name.$ranks" 2>"$folder/errors"
    else
        timeout 300 "$TUTTI" run -n "$ranks" "$examples/example_$name" "$@" >"$folder/$name.$ranks" 2>"$folder/errors"
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
# The last layer is reduced while the first is computed: not in every step of a busy machine.
sed -n 's/^.*overlap in \([0-9]*\) of 1000 steps$/\1/p' "$folder/bring_your_own_gradients.2" | awk '{ n = $1 } END { exit !(n > 0) }' ||
    fail "bring_your_own_gradients: nothing overlaps"
[ "$(wc -l <"$SOURCE_DIR/examples/bring_your_own_gradients.c")" -lt 100 ] || fail "bring_your_own_gradients: not under 100 lines"
for name in linear_regression bring_your_own_gradients; do
    same $name alone 1 5
    same $name alone 2 5
done

# For any number of workers, and any killed one, the digest is that of one worker.
digest() { sed -n 's/.*digest //p' "$folder/$1"; }
for name in elastic_reducer elastic_training; do
    [ "$(wc -l <"$SOURCE_DIR/examples/$name.c")" -lt 120 ] || fail "$name: not under 120 lines"
    for ranks in alone 1 3; do
        run $name $ranks 300
        [ -n "$(digest $name.$ranks)" ] || fail "$name, $ranks: no digest"
        [ "$(digest $name.$ranks)" = "$(digest $name.alone)" ] || fail "$name: digests differ between alone and $ranks"
    done
    timeout 180 "$TUTTI" run -n 2 --max-restarts 99 --chaos kill=20,until=2,seed=3 "$examples/example_$name" 300 >"$folder/chaos" 2>"$folder/errors" ||
        fail "$name, chaos: exit code $?: $(cat "$folder/errors")"
    [ "$(digest chaos)" = "$(digest $name.alone)" ] || fail "$name: digests differ between alone and chaos: $(cat "$folder/chaos" "$folder/errors")"
done

accuracy() { # NAME RANKS LEAST
    sed -n 's/.*accuracy //p' "$folder/$1.$2" | tail -1 | awk -v least="$3" '{ exit !($1 > least) }' ||
        fail "$1, $2: the accuracy is not above $3"
}

run mini_resnet 1 digits 1 "$folder/weights.1"
accuracy mini_resnet 1 0.5
run mini_resnet 2 digits 2 "$folder/weights.2"
accuracy mini_resnet 2 0.85
falls mini_resnet 2 0.6
for ranks in 1 2; do
    [ -s "$folder/weights.$ranks" ] || fail "mini_resnet, $ranks: no weights written"
done

# A program's own model and data, in at most 60 lines; the same in PyTorch, if installed.
[ "$(wc -l <"$SOURCE_DIR/examples/own_model.c")" -le 60 ] || fail "own_model: more than 60 lines"
cd "$folder" || exit 1
for ranks in alone 2; do
    run own_model $ranks --epochs 4 --augment off --run-dir "$folder/own.$ranks"
    sed -n 's/.*"val_accuracy": //p' "$folder/own.$ranks/summary.json" | awk '{ exit !($1 > 0.9) }' || fail "own_model, $ranks: accuracy"
done
run own_model 1 --data digits --epochs 1 --run-dir "$folder/own.digits"
python=$(command -v "${TUTTI_TEST_PYTHON:-python3}")
if "$python" -c 'import torch.distributed as d; assert d.is_gloo_available()' 2>/dev/null; then
    timeout 270 "$TUTTI" run -n 2 "$python" "$SOURCE_DIR/examples/own_model.py" --epochs 2 --run-dir pytorch >pytorch.out 2>&1 ||
        fail "own_model.py: $(cat pytorch.out)"
    sed -n 's/.*test accuracy \([0-9.]*\).*/\1/p' pytorch.out | tail -n 1 | awk '{ exit !($1 > 90) }' || fail "own_model.py: $(cat pytorch.out)"
else
    echo "own_model.py: not run (${TUTTI_TEST_PYTHON:-python3} has no PyTorch with Gloo)"
fi

# a wrong argument is a message and an exit code, from any rank
if "$TUTTI" run -n 2 "$examples/example_mini_resnet" no_such_data 1 >"$folder/out" 2>&1; then
    fail "mini_resnet no_such_data: exit code 0"
fi
grep -q no_such_data "$folder/out" || fail "mini_resnet no_such_data: no message names it"

finish
