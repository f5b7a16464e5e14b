# An operation of one's own, in C, C++ and Rust: right by tutti_op_check, and the same bits in a model that tutti train loads from a
# shared object.   timeout: 120   SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
. "$SOURCE_DIR/tests/harness/compiler.sh"
examples=$SOURCE_DIR/examples
rust=$(command -v rustc || true)
library=(-L"$BUILD_DIR" -ltutti -Wl,-rpath,"$BUILD_DIR" -lm)
skipped=
take your-own-operation.md squareplus_net.c
compile "$c" -std=c11 -Wall -Wextra -fPIC -I"$SOURCE_DIR/include" -c squareplus_net.c

# right LANGUAGE: ./right says that the operation is right
right() {
    timeout 60 ./right >right.out 2>&1 && grep -qx 'squareplus is right' right.out || { cat right.out; fail "the operation in $1"; }
}
law() { # LANGUAGE FILES...: the model of squareplus_net.c, with the operation from these files
    local language=$1
    shift
    compile "$c" -shared -o $language.so squareplus_net.o "$@"
    train $language --model ./$language.so --epochs 3 --batch-size 8 --shards 2 --threads 1 --lr 0.05 --augment false
    train $language.2 --model ./$language.so --epochs 3 --batch-size 8 --shards 2 --threads 2 --lr 0.05 --augment false -n 2
    same $language $language.2
    same $language c
    awk -v a="$(field $language/summary.json val_accuracy)" 'BEGIN { exit !(a > 0.9) }' || fail "$language: accuracy $(field $language/summary.json val_accuracy)"
}

compile "$c" -std=c11 -Wall -Wextra -I"$SOURCE_DIR/include" -o right "$examples/own_operation.c" "${library[@]}"
right C
compile "$c" -std=c11 -Wall -Wextra -fPIC -O2 -I"$SOURCE_DIR/include" -c -o c.o "$examples/own_operation.c"
law c c.o -lm
train plain --model ./c.so --epochs 1 -n 2 --threads 1 --checkpoint-every 20 --keep-checkpoints 0 --max-steps 40 --schedule constant
train resumed --model ./c.so --epochs 1 -n 2 --threads 1 --max-steps 40 --schedule constant --resume plain/checkpoints/step-00000020
same plain resumed
train zero --model ./c.so --epochs 1 -n 2 --threads 1 --max-steps 40 --schedule constant --zero 1
same plain zero
TUTTI_EMULATE_HALF=1 train half --model ./c.so --epochs 3 --amp bf16 --lr 0.05
train strict --model ./c.so --epochs 1 --device strict

if [ -n "$cxx" ]; then
    compile "$cxx" -Wall -Wextra -pedantic -I"$SOURCE_DIR/include" -o right "$examples/own_operation.cc" "${library[@]}"
    right C++
    compile "$cxx" -Wall -Wextra -pedantic -fPIC -O2 -I"$SOURCE_DIR/include" -c -o cxx.o "$examples/own_operation.cc"
    law cxx cxx.o -lstdc++ -lm
else
    skipped=" no C++ compiler,"
fi
if [ -n "$rust" ] && "$rust" --version >/dev/null 2>&1; then
    for level in 0 3; do # optimised code leaves other values where a wrong declaration reads
        compile "$rust" -C opt-level=$level -o right "$examples/own_operation.rs" -C "linker=$c" -L "$BUILD_DIR" -l tutti \
            -C link-arg=-Wl,-rpath,"$BUILD_DIR"
        right Rust
    done
    compile "$rust" -C opt-level=3 --crate-type staticlib -o libown.a "$examples/own_operation.rs"
    law rust libown.a -lpthread -ldl -lm
else
    skipped="$skipped no Rust compiler,"
fi
echo "an operation of one's own in several languages${skipped:+ (left out:${skipped%,})}"
