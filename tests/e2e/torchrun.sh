# torchrun.sh -- Tutti's programs under the real torchrun: they train as under `tutti run`, and when a rank fails torchrun's
# report names it, with its message, not a survivor.   SPDX-License-Identifier: MIT   timeout: 120   tier: long
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
torchrun=${TUTTI_TEST_TORCHRUN:-$(command -v torchrun || true)}
unset TUTTI_TEST_TORCHRUN
[ -n "$torchrun" ] || {
    echo "skipped: there is no torchrun (pip install torch; TUTTI_TEST_TORCHRUN says where it is)"
    exit 77
}
under() { timeout -k 2 180 "$torchrun" --standalone --nproc-per-node 2 --no-python "$@"; }
mlp="--model mlp --augment off --threads 1 --lr 0.05 --max-steps 12"

train native -n 2 $mlp
under "$TUTTI" train --run-dir torch $mlp >torch.out 2>&1 || { cat torch.out; fail "tutti train under torchrun"; }
same native torch

# root RANK EXIT TEXT: the report's first failed rank, how it ended, and its message
root() {
    sed -n '/^Root Cause/,$p' report >root
    grep -q "rank      : $1 " root || { cat report; fail "rank $1 is not the root cause"; }
    grep -q "exitcode  : $2 " root || { cat report; fail "its exit code is not $2"; }
    [ -z "$3" ] || grep -qF -e "$3" root || { cat report; fail "its output is not \"$3\""; }
}
# each RANK ASSIGNMENT WORDS...: that rank of two has this in its environment and runs tutti train with these too
cat >each.sh <<'END'
odd=$1
export "${@:2:1}"
shift 2
[ "$RANK" = "$odd" ] || { set -- && unset TUTTI_KERNELS; }
exec "$TUTTI" train --run-dir run --epochs 100000 --model mlp --augment off --threads 1 "$@"
END
for rank in 0 1; do
    under bash each.sh $rank TUTTI_KERNELS=nowhere >report 2>&1 && fail "a failed run succeeded"
    root $rank 2 'TUTTI_KERNELS is "nowhere"'
done
under bash each.sh 1 A=b --model linear >report 2>&1 && fail "two models in one run"
root 1 3 'model: this rank has "linear" and rank 0 has "mlp"'

# Killed ranks write nothing, but are named; the survivor's message is among the other failures.
rm -rf run
cat >die.sh <<'END'
# The rank kills itself after the run has begun.
[ "$RANK" = 1 ] && (while ! [ -s run/metrics.jsonl ]; do sleep 0.01; done; kill -KILL $$) &
exec "$TUTTI" train --run-dir run --epochs 100000 --model mlp --augment off --threads 1
END
under bash die.sh >report 2>&1 && fail "a killed run succeeded"
root 1 -9 'Signal 9'
grep -q 'rank 1 (.* was lost' report || { cat report; fail "the surviving rank's message is missing"; }
echo "trained under $torchrun, and it names who failed"
