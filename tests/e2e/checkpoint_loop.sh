# The program of docs/checkpoint.md: interrupted and continued it ends with the bits of a run that was not; the commands read its
# checkpoints.
# timeout: 120
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
. "$SOURCE_DIR/tests/harness/compiler.sh"
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
cd "$work" || exit 1
take checkpoint.md train_loop.c
build() { # NAME: the program NAME of NAME.c
    compile "$c" -std=c11 -Wall -Wextra -I"$SOURCE_DIR/include" -o "$1" "$1.c" -L"$BUILD_DIR" -ltutti -Wl,-rpath,"$BUILD_DIR"
}
build train_loop

digest() { sed -n 's/.*"model_digest": "\(.*\)".*/\1/p' digits.ckpt/state.json; }

# 23 steps an epoch
run 0 "$TUTTI" run -n 2 ./train_loop 4
out_has '92 steps'
whole=$(digest)
[ ${#whole} = 32 ] || fail "no digest: $(cat digits.ckpt/state.json)"
ls digits.ckpt >files
equal "the files" "$(tr '\n' ' ' <files)" "model.safetensors optimizer.safetensors state.json "
run 0 "$TUTTI" run -n 2 ./train_loop 4 # nothing is left to do
out_has '92 steps'
equal "the digest of a run that was over" "$(digest)" "$whole"

# By a kill after a checkpoint, which then may be in the middle of another one.
for delay in 0 0.02 0.05; do
    rm -rf digits.ckpt
    ./train_loop 2000 >/dev/null 2>&1 &
    wait_until "the first checkpoint" test -e digits.ckpt/state.json
    sleep $delay # any moment will do
    kill -KILL $!
    wait $! 2>/dev/null
    cp -r digits.ckpt killed # complete
    run 0 "$TUTTI" checkpoint verify killed
    rm -rf killed
    step=$(sed -n 's/.*"step": \([0-9]*\).*/\1/p' digits.ckpt/state.json)
    [ "$step" -gt 0 ] && [ "$((step % 20))" = 0 ] || fail "the checkpoint is of step $step"
done

# In the middle of an epoch, by a program that stops; then with another number of ranks.
sed 's|if (++at.step % 20 == 0)|if (++at.step == 37) { TUTTI_MUST(tutti_checkpoint_save_with("digits.ckpt", \&m.base, optim, group, \&parts)); return 9; }\n            if (0)|' train_loop.c >stops.c
build stops
rm -rf digits.ckpt
run 9 "$TUTTI" run -n 2 ./stops 4
run 0 "$TUTTI" checkpoint show digits.ckpt
out_has '^checkpoint at step 37, in epoch 2 after batch 14, of 2 ranks$'
cp -r digits.ckpt half
run 0 "$TUTTI" run -n 2 ./train_loop 4
out_has '92 steps'
equal "the digest of a continued run" "$(digest)" "$whole"
rm -rf digits.ckpt && mv half digits.ckpt
run 0 ./train_loop 4 # 1438 samples, of which 14 * 2 * 32 are used: 17 batches of 32, then 2 epochs of 45
out_has "$((37 + 17 + 90)) steps"

# On a file system that cannot exchange two names, the older checkpoint moves aside for a moment.
if command -v strace >strace.path && strace -f -o trace -e trace=rename true 2>strace.err; then
    rm -rf digits.ckpt
    run 0 strace -f -o trace -e trace=renameat2 -e inject=renameat2:error=EINVAL "$TUTTI" run -n 2 ./train_loop 4
    equal "the digest without an exchange of names" "$(digest)" "$whole"
    [ "$(grep -c INJECTED trace)" = 5 ] || fail "not every save was without an exchange: $(cat trace)"
    [ -z "$(find . -name '*.tmp' -not -path './.tmp*')" ] || fail "temporary files are left: $(ls)"
else
    echo "not tested, needs strace that may trace: a file system that cannot exchange names"
fi

# Commands
run 0 "$TUTTI" checkpoint show digits.ckpt
out_has '^checkpoint at step [0-9]+, after epoch 4, of [12] ranks?$'
run 0 "$TUTTI" checkpoint verify digits.ckpt
out_has '^all intact: 3 files'
run 0 "$TUTTI" checkpoint export digits.ckpt mlp.pt
out_has '4 tensors in mlp.pt'
run 0 "$TUTTI" eval digits.ckpt --model mlp --data digits
out_has 'on digits:test'
run 0 "$TUTTI" train --model mlp --init digits.ckpt --max-steps 1 --run-dir from
run 1 "$TUTTI" train --model mlp --resume digits.ckpt --run-dir resumed
err_has 'digits.ckpt holds no checkpoint of a run.*--init digits.ckpt'
: >digits.ckpt/model.safetensors
run 1 "$TUTTI" run -n 2 ./train_loop
err_has 'model.safetensors'
finish
