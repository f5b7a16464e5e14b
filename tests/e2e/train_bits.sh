# train_bits.sh -- the bits of a training run do not depend on the number of threads, and TUTTI_CPU_ISA chooses them: equal for
# equal sets, whatever else the machine has.   SPDX-License-Identifier: MIT
# timeout: 120   breadth: 180
# ALL: 2 and 4 threads under each set of instructions; else under the machine's own, and 3 under the others.
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"

# MODEL ARGUMENTS...: digests for 1 to 4 threads, under each instruction set that this CPU has
check() {
    local model=$1 isa threads
    shift
    for isa in auto avx512 avx2 sse41 reference; do
        export TUTTI_CPU_ISA=auto TUTTI_KERNELS=onednn
        [ $isa = reference ] && export TUTTI_KERNELS=reference slow="--batch-size 3 --max-steps 1" || export TUTTI_CPU_ISA=$isa
        counts="1 3" slow=
        { [ -z "${ALL:-}" ] && [ $isa != auto ]; } || counts="1 2 3 4"
        for threads in $counts; do
            if [ $threads = 1 ] && ! "$TUTTI" train --run-dir try --max-steps 1 --model linear --eval-every 0 >try.out 2>&1; then
                grep -qE 'this CPU has|this build lacks them' try.out || { cat try.out; fail "TUTTI_CPU_ISA=$isa"; }
                echo "$isa: $(tail -1 try.out)"
                continue 2
            fi
            rm -rf try
            train $model.$isa.$threads --model $model --max-steps 2 --eval-every 0 --threads $threads "$@" $slow
            same $model.$isa.1 $model.$isa.$threads
        done
    done
}
check mlp --batch-size 5 --dropout 0.3 --optimizer adamw --clip-grad-norm 1
check mini_resnet --batch-size 6

export TUTTI_KERNELS=auto
TUTTI_CPU_ISA=avx2 train again --model mlp --max-steps 2 --eval-every 0 --threads 2 --batch-size 5 --dropout 0.3 --optimizer adamw --clip-grad-norm 1
[ ! -d mlp.avx2.1 ] || same again mlp.avx2.1
# Wider vectors add in the same order; sse41 rounds each product, which the others add unrounded.
[ ! -d mlp.avx2.1 ] || [ "$(digest mlp.sse41.1)" != "$(digest mlp.avx2.1)" ] || fail "sse41 was asked for and avx2 is what ran"
if [ -d mini_resnet.auto.1 ]; then
    TUTTI_CONV=direct train direct --model mini_resnet --max-steps 2 --eval-every 0 --batch-size 6
    [ "$(digest direct)" != "$(digest mini_resnet.auto.1)" ] || fail "TUTTI_CONV=direct changed nothing"
    TUTTI_CPU_ISA=avx9 refused 2 'TUTTI_CPU_ISA is "avx9", expected auto, avx512, avx2 or sse41' "$TUTTI" train --run-dir bad --max-steps 1
    TUTTI_CONV=fft refused 2 'TUTTI_CONV is "fft", expected auto, winograd or direct' "$TUTTI" train --run-dir bad --max-steps 1
fi

# Workers that would not give the same bits are not mixed in an elastic job: the second one is refused.
if [ -d mlp.avx2.1 ] && [ -d mlp.sse41.1 ]; then
    cat >mixed.sh <<'END'
[ "$LOCAL_RANK" = 0 ] && export TUTTI_CPU_ISA=avx2 || export TUTTI_CPU_ISA=sse41
exec "$TUTTI" train --model mlp --run-dir mixed --shards 3 --max-steps 2 --eval-every 0 --threads 1
END
    timeout 180 "$TUTTI" run -n 2 sh mixed.sh >mixed.out 2>&1 || { cat mixed.out; fail "the remaining worker did not complete the job"; }
    # By rank they may be mixed: the replicas are equal, and a warning says what may differ.
    sed -i 's/--shards 3/--run-dir ranks/' mixed.sh
    timeout 180 "$TUTTI" run -n 2 sh mixed.sh >ranks.out 2>&1 || { cat ranks.out; fail "ranks of two instruction sets"; }
    [ "$(grep -cE 'rank 0 computes with .*avx2, but rank 1 with .*sse41: replicas stay equal' ranks.out)" = 1 ] || { cat ranks.out; fail "mixed instruction sets are not reported"; }
    grep -qE 'a worker is refused: .*onednn [0-9.]+ (avx2|sse41)".*TUTTI_CPU_ISA' mixed.out || { cat mixed.out; fail "builds are mixed"; }
fi
