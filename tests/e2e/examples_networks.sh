# Each example of a network of one's own learns with two ranks, and one of each kind alone; so does its PyTorch twin.
# examples_networks_all: each alone, too.   timeout: 300   SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
seconds_at_most=100
python=$(command -v "${TUTTI_TEST_PYTHON:-python3}")
twins=
"$python" -c 'import torch.distributed as d; assert d.is_gloo_available()' 2>/dev/null && twins=yes

learns() { # WHAT COMMAND...: nothing on standard error, and the last loss of a step is below half of the first
    local what=$1
    shift
    run 0 "$@" || return
    [ ! -s "$work/err" ] || fail "$what: standard error: $(cat "$work/err")"
    sed -n '/ step  *[0-9]\|^\(step\|epoch\) /s/.*  loss //p' "$work/out" | awk -v what="$what" 'NR == 1 { first = $1 } { last = $1 }
        END { print what ": loss " first " -> " last; exit !(NR > 1 && last < 0.5 * first) }' ||
        fail "$what: the loss does not fall to half: $(cat "$work/out")"
}

for name in attention lstm_classifier multi_label siamese vae; do
    [ "${ALONE:-siamese}" != "$name" ] && [ -z "${ALONE:-}" ] || learns "$name, alone" "$BUILD_DIR/examples/example_$name"
    learns "$name, 2 ranks" "$TUTTI" run -n 2 "$BUILD_DIR/examples/example_$name"
    if [ -n "$twins" ]; then
        learns "$name.py" env OMP_NUM_THREADS=1 "$TUTTI" run -n 1 "$python" "$SOURCE_DIR/examples/$name.py"
    else
        echo "$name.py: not run (${TUTTI_TEST_PYTHON:-python3} has no PyTorch with Gloo)"
    fi
done

# Programs over tutti_trainer, and their twins with a loop
twin() { # NAME ARGUMENTS...
    local name=$1
    shift
    [ -z "$twins" ] || learns "$name.py" env OMP_NUM_THREADS=1 "$TUTTI" run -n 1 "$python" "$SOURCE_DIR/examples/$name.py" "$@"
}
table=$SOURCE_DIR/examples/regression.csv
for ranks in ${ALONE:+1} 2; do
    learns "resnet18, $ranks" "$TUTTI" run -n $ranks "$BUILD_DIR/examples/example_resnet18" --run-dir "$work/resnet18"
    learns "mlp_mixer, $ranks" "$TUTTI" run -n $ranks "$BUILD_DIR/examples/example_mlp_mixer" --run-dir "$work/mlp_mixer"
    learns "unet, $ranks" "$TUTTI" run -n $ranks "$BUILD_DIR/examples/example_unet" --run-dir "$work/unet"
    learns "regression, $ranks" "$TUTTI" run -n $ranks "$BUILD_DIR/examples/example_regression" --data-dir "$table" --target price \
        --run-dir "$work/regression"
done
[ -n "${ALONE:-}" ] || learns "mlp_mixer, alone" "$BUILD_DIR/examples/example_mlp_mixer" --run-dir "$work/alone"
run 0 "$BUILD_DIR/examples/example_regression" --predict "$work/regression" --out "$work/predictions.csv"
run 0 "$BUILD_DIR/examples/example_unet" --eval "$work/unet" --split train --json "$work/unet.json"
awk '/"iou": / && !/{/ { gsub(/[^0-9.]/, "", $2); iou = $2 } END { exit !(iou > 0.5) }' "$work/unet.json" || fail "unet: IoU: $(cat "$work/unet.json")"
twin resnet18
twin unet
twin mlp_mixer
twin regression "$table" price
for name in resnet18 regression unet mlp_mixer; do
    [ "$(wc -l <"$SOURCE_DIR/examples/$name.c")" -le 80 ] || fail "$name.c: more than 80 lines"
done
finish
