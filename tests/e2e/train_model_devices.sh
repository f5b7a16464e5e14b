# train_model_devices.sh -- the laws of training for larger models on the strict device and with the instructions of each level: strict has
# the bits of the reference kernels; with every level ranks agree, a resumed run equals an uninterrupted one, and threads and recomputed
# blocks change nothing.   timeout: 120   breadth: 180
# SPDX-License-Identifier: MIT
# ALL: each model with each level; else each level has one of the models.
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
keys="--batch-size 2 --max-steps 3 --eval-every 0 --schedule constant --warmup-epochs 0 --lr 0.01 --dropout 0.2"
equal() { # WHAT RUN RUN
    [ -n "$(digest "$2")" ] && [ "$(digest "$2")" = "$(digest "$3")" ] || fail "$1: $2 has $(digest "$2"), $3 $(digest "$3")"
}
for model in resnet18 "vit --layers 2 --width 32 --heads 2"; do
    name=${model%% *}
    own="--model $model $keys"
    TUTTI_KERNELS=reference train $name.cpu $own --threads 1 --device cpu
    train $name.strict $own --threads 1 --device strict
    equal "$name on the strict device" $name.cpu $name.strict
    train $name.strict.again $own --threads 1 --device strict --recompute
    equal "$name on the strict device with recomputed blocks" $name.strict $name.strict.again
    isas="sse41 avx2 avx512"
    [ -n "${ALL:-}" ] || case $name in resnet18) isas=avx2 ;; vit) isas="sse41 avx512" ;; esac
    for isa in $isas; do
        export TUTTI_CPU_ISA=$isa TUTTI_KERNELS=onednn
        code=0
        timeout 180 "$TUTTI" train --run-dir $name.$isa $own -n 2 --threads 1 --checkpoint-every 2 --keep-checkpoints 0 >try.out 2>&1 || code=$?
        if [ $code != 0 ]; then
            grep -qE 'this CPU has|this build lacks them' try.out || { cat try.out; fail "$name: TUTTI_CPU_ISA=$isa"; }
            echo "not checked: $isa"
            continue
        fi
        train $name.$isa.resumed $own -n 2 --threads 2 --recompute --resume $name.$isa/checkpoints/step-00000002
        equal "$name with $isa, resumed" $name.$isa $name.$isa.resumed
    done
    unset TUTTI_CPU_ISA TUTTI_KERNELS
done
