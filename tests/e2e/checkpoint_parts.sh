# A checkpoint of which every rank writes its part: read by any number of ranks and layout, with the same bits; killed, failed, damaged and missing
# parts; read by safetensors.   timeout: 400   SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
keys="--model mlp --threads 1 --epochs 2 --batch-size 30 --optimizer adamw --lr 0.001 --schedule constant --checkpoint-every 5 --keep-checkpoints 0"
verify() { "$TUTTI" checkpoint verify "$1" >verify.out 2>&1; }
nothing_left() { [ -z "$(find "$1" -name '*.tmp' -o -name '.seen-*')" ] || fail "left in $1: $(find "$1" -name '*.tmp' -o -name '.seen-*')"; }

train whole $keys -n 3
train parts $keys -n 3 --zero 1
same parts whole
nothing_left parts
verify parts || { cat verify.out; fail "verify"; }
from=parts/checkpoints/step-00000010
[ "$(ls $from)" = "$(printf '%s\n' model.safetensors optimizer-0000{1,2,3}-of-00003.safetensors optimizer.safetensors.index.json state.json)" ] ||
    { ls $from; fail "files of a checkpoint in parts"; }
grep -q 'optimizer.safetensors.index.json' verify.out || { cat verify.out; fail "verify does not name the index"; }
[ "$(digest parts)" = "$(sed -n 's/.*"model_digest": "\(.*\)".*/\1/p' parts/checkpoints/latest/state.json)" ] || fail "model_digest"

# Interrupted and resumed is uninterrupted: with parts or without, from parts or without. With other ranks the same from either.
for run in "3 whole --zero 1" "3 parts" "3 parts --zero 1"; do
    read -r n of zero <<<"$run"
    train again $keys -n $n --resume $of/checkpoints/step-00000010 $zero
    same again whole
    rm -rf again
done
for n in 1 2 4; do
    train a $keys -n $n --resume whole/checkpoints/step-00000010
    train b $keys -n $n --resume parts/checkpoints/step-00000010 --zero 1
    same b a
    rm -rf a b
done
# Parts of one number of ranks, of a plain one, of another; by shards, where any number has the same bits.
shards="--model mlp --threads 1 --batch-size 10 --optimizer adamw --lr 0.001 --schedule constant --shards 4 --keep-checkpoints 0 --checkpoint-every 5 --max-steps 15"
train undisturbed $shards -n 2
train one $shards -n 4 --zero 1
train two $shards --resume one/checkpoints/step-00000005
train three $shards -n 3 --zero 1 --resume two/checkpoints/step-00000010
same three undisturbed

# With ZeRO-3 the model is in parts too: the same bits from and to every stage, and its weights in the run folder.
train three3 $keys -n 3 --zero 3
same three3 whole
nothing_left three3
verify three3 || { cat verify.out; fail "verify of zero 3"; }
grep -q 'intact   three3/model.safetensors.index.json' verify.out || { cat verify.out; fail "the run folder's parts are not verified"; }
[ "$(ls three3/checkpoints/latest | grep -c '^model')" -ge 3 ] && [ ! -e three3/model.safetensors ] || { ls three3 three3/checkpoints/latest; fail "zero 3 writes no parts"; }
[ "$(digest three3)" = "$(sed -n 's/.*"model_digest": "\(.*\)".*/\1/p' three3/checkpoints/latest/state.json)" ] || fail "model_digest of zero 3"
for stages in "1 3" "2 3" "3 0" "3 1" "3 3" "0 3"; do
    read -r from3 to3 <<<"$stages"
    case $from3 in 0) of=whole ;; 1) of=parts ;; 3) of=three3 ;; 2) train two2 $keys -n 3 --zero 2 && of=two2 ;; esac
    train again $keys -n 3 --resume $of/checkpoints/step-00000010 --zero $to3
    same again whole
    rm -rf again
done
train a $keys -n 2 --resume whole/checkpoints/step-00000010
train b $keys -n 2 --resume three3/checkpoints/step-00000010 --zero 3
same b a
train c $keys -n 1 --resume whole/checkpoints/step-00000010
train d $keys -n 1 --resume three3/checkpoints/step-00000010
same d c
"$TUTTI" checkpoint export three3 three3.safetensors >export.out || { cat export.out; fail "export of parts"; }
"$TUTTI" checkpoint export whole whole.safetensors >export.out || { cat export.out; fail "export"; }
cmp three3.safetensors whole.safetensors || fail "exported weights differ"
"$TUTTI" eval three3 --data digits >a.out 2>&1 && "$TUTTI" eval whole --data digits >b.out 2>&1 || { cat a.out b.out; fail "eval of parts"; }
diff <(grep -v 'images/s\|three3' a.out) <(grep -v 'images/s\|whole' b.out) || fail "eval of parts"
at=three3/checkpoints/step-00000032
cp -rL $at hurt && rm hurt/model-00001-of-*
refused 1 "hurt/model-00001-of-0000$(ls $at | grep -c '^model-').safetensors is missing" "$TUTTI" eval hurt --data digits --model mlp
"$TUTTI" train $keys -n 3 --run-dir three3 --epochs 3 --resume auto >three3.out 2>&1 || { cat three3.out; fail "zero 3 continued without"; }
[ -e three3/model.safetensors ] && [ -z "$(ls three3 | grep '^model-')" ] || { ls three3; fail "parts of an earlier layout are left"; }
if python3 -c 'import torch, safetensors.torch' 2>python.err; then
    python3 - $at whole.safetensors <<'END' || fail "safetensors.torch reads other weights"
import glob, sys, torch
import safetensors.torch as s
parts = {}
for file in glob.glob(sys.argv[1] + "/model-*.safetensors"):
    parts.update(s.load_file(file))
whole = s.load_file(sys.argv[2])
assert parts.keys() == whole.keys() and all(torch.equal(parts[k], whole[k]) for k in whole)
END
else
    echo "skipped: python3 has no safetensors and torch"
fi

# Parts of parameters: each rank reads and writes what it has; --init too. The bits of tensor parallelism depend on T, not on the stage of ZeRO.
gpt="--model gpt2 --data shakespeare --layers 2 --heads 2 --width 32 --context 16 --batch-size 4 --threads 1 --max-steps 8 --eval-every 0 --sample-tokens 0 --optimizer adamw --schedule constant --checkpoint-every 4 --keep-checkpoints 0 --ema 0.9"
train tensor $gpt -n 4 --tensor 2
verify tensor && nothing_left tensor || { cat verify.out; fail "verify of tensor"; }
[ -e tensor/ema.safetensors.index.json ] && [ -e tensor/model.safetensors.index.json ] || { ls tensor; fail "no parts of the weights"; }
for zero in 0 1 2; do
    train again $gpt -n 4 --tensor 2 --zero $zero --resume tensor/checkpoints/step-00000004
    same again tensor
    [ "$(field again/summary.json ema_digest)" = "$(field tensor/summary.json ema_digest)" ] || fail "the average after a resume with zero $zero"
    rm -rf again
done
train alone $gpt --resume tensor/checkpoints/step-00000004
still="${gpt/--ema 0.9/} --max-steps 1 --lr 0"
train base $still --seed 7
train divided $still -n 2 --tensor 2 --init base
train back $still --init divided
same divided base
same back base

# A run of a divided model that ends without a step: its weights are those of the checkpoint that it came from, in its folder or another;
# lr_find saves none.
gpt0="${gpt/--ema 0.9/}"
for layout in "--zero 3" "--tensor 2" "--pipeline 2"; do
    rm -rf ended elsewhere
    train ended $gpt0 -n 2 $layout
    rm ended/summary.json ended/model*
    touch ended/model-00001-of-00009.safetensors.link.tmp
    train ended $gpt0 -n 2 $layout --resume auto
    verify ended && nothing_left ended && [ -e ended/model.safetensors.index.json ] || { ls ended; fail "$layout: nothing was left to do"; }
    train elsewhere $gpt0 -n 2 $layout --resume ended/checkpoints/step-00000008
    verify elsewhere || { ls elsewhere; fail "$layout: nothing was left to do, in another folder"; }
    same elsewhere ended
done
rm tensor/summary.json tensor/model* tensor/ema*
train tensor $gpt -n 4 --tensor 2 --resume auto
[ -e tensor/ema.safetensors.index.json ] || { ls tensor; fail "the averages are not linked"; }
rm -rf ended
train ended $gpt0 -n 2
rm ended/summary.json ended/model*
train ended $gpt0 -n 2 --zero 3 --resume auto
[ -e ended/model.safetensors ] || fail "a checkpoint without parts: its weights are not linked"
for layout in "--zero 3" "--tensor 2"; do
    train find $gpt0 -n 2 $layout --lr-find
    [ -e find/lr_find.json ] || fail "$layout: lr_find.json is missing"
    rm -rf find
done

# Everywhere where weights are expected; the optimizer's index as a file.
"$TUTTI" eval parts --data digits >eval.out 2>&1 || { cat eval.out; fail "eval"; }
"$TUTTI" checkpoint show $from >show.out || fail "show"
"$TUTTI" checkpoint show $from/optimizer.safetensors.index.json >show.out || fail "show of the index"
grep -q 'safetensors, 3 files' show.out && grep -q 'exp_avg_sq.fc1.weight' show.out || { cat show.out; fail "show of the index"; }
"$TUTTI" checkpoint export $from out.safetensors >export.out || { cat export.out; fail "export"; }
train begun $keys --max-steps 1 --init $from

# A checkpoint of the state before the first step after a resume: the state is whole there.
for end in 10 12; do
    train stay $keys -n 2 --zero 1 --warmup-epochs 0.25 --max-steps $end --resume $from
    verify stay || { cat verify.out; fail "resumed to step $end"; }
    rm -rf stay
done

# A rank whose host does not have the run folder: the others write and read its part.
cat >apart.sh <<'END'
[ $RANK != 1 ] || exec unshare -rm sh -c 'mount -t tmpfs none own && exec "$@"' apart "$@"
exec "$@"
END
mkdir own
if unshare -rm mount -t tmpfs none own 2>mount.err; then
    "$TUTTI" run -n 3 sh apart.sh "$TUTTI" train --run-dir own/run $keys --zero 1 >own.out 2>&1 || { cat own.out; fail "a rank without the folder"; }
    [ "$(grep -c '1 of 3 ranks (rank 1 is the first) do not see own/run/checkpoints' own.out)" = 1 ] || { cat own.out; fail "it is not said once that a rank does not see the folder"; }
    same own/run whole
    verify own/run && [ "$(ls own/run/checkpoints/latest | grep -c optimizer-)" = 2 ] || { cat verify.out; fail "the parts of two ranks"; }
    "$TUTTI" run -n 3 sh apart.sh "$TUTTI" train --run-dir own/again $keys --zero 1 --resume own/run/checkpoints/step-00000010 >own.out 2>&1 || { cat own.out; fail "resumed by a rank without the folder"; }
    same own/again whole
else
    echo "skipped: no folders of a rank's own: $(cat mount.err)"
fi

# Damaged, missing, of another step, of another run; an index that names a tensor which is not there.
damage() { # NAME TEXT COMMAND: of a copy, which is left out when there is an older one
    rm -rf copy && mkdir -p copy/checkpoints
    cp -r parts/checkpoints/step-00000005 parts/checkpoints/step-00000010 copy/checkpoints
    local at=copy/checkpoints/step-00000010
    eval "$3"
    ! verify $at || fail "$1: verify finds nothing"
    grep -q -- "$2" verify.out || { cat verify.out; fail "$1: verify does not say: $2"; }
    refused 1 "" "$TUTTI" train $keys -n 2 --zero 1 --run-dir other --resume "$at"
    grep -q -- "$2" refused.out || { cat refused.out; fail "$1: not said: $2"; }
    train copy $keys -n 3 --zero 1 --resume auto
    grep -q 'step-00000010 is skipped: ' copy.out || { cat copy.out; fail "$1: the damaged one is not skipped"; }
    same copy whole
}
second=optimizer-00002-of-00003.safetensors
train other_run $keys --seed 3 -n 2 --max-steps 10
damage flipped "$second is damaged: tensor " "printf x | dd of=\$at/$second bs=1 seek=6000 conv=notrunc 2>dd.err"
damage cut "$second is not a valid safetensors file" "truncate -s -4 \$at/$second"
damage missing "$second is missing, one of the 3 files that .*index.json names" "rm \$at/$second"
damage older "$second beside .* is another file .*of step 5" "cp copy/checkpoints/step-00000005/$second \$at"
damage older_optimizer "optimizer.safetensors.index.json is of step 5, and state.json beside it of step 10" "cp copy/checkpoints/step-00000005/optimizer* \$at"
damage no_digests "has no .xxh3_headers" "sed -i 's/xxh3_headers/no_headers/' \$at/optimizer.safetensors.index.json"
damage no_step "step is not an integer from 0" "sed -i '/\"digest\":/d; /\"model_digest\"/s/,\$//; 3s/10/-1/' \$at/state.json"
rename="sed -i 's/\"exp_avg.fc1.bias\"/\"no_such\"/' \$at/optimizer.safetensors.index.json"
damage index "index.json is another file than the one that was written with state.json" "$rename"
unnamed="sed -i '/\"digest\":/d; /\"files\": {/,/}/d; /\"model_digest\"/s/,\$//' \$at/state.json" # as before it named the files
damage index_named_nowhere "tensor .no_such. is not in optimizer\|exp_avg.fc1.bias is missing" "$rename; $unnamed"
damage other_run "model.safetensors is another file than the one that was written with state.json" "cp other_run/checkpoints/step-00000010/model.safetensors \$at"
damage no_index 'optimizer.safetensors is missing\|cannot open .*optimizer.safetensors' "rm \$at/optimizer.safetensors.index.json"

# Each rank verifies a part: damage is said once, with its rank, file and tensor.
for file in model-00002 optimizer-00003; do
    rm -rf copy other && mkdir -p copy/checkpoints
    cp -r three3/checkpoints/step-0000001* copy/checkpoints
    at=$(ls -d copy/checkpoints/* | tail -1)
    [ -e $at/$file-of-00003.safetensors ] || continue
    printf x | dd of=$at/$file-of-00003.safetensors bs=1 seek=$(($(stat -c %s $at/$file-of-00003.safetensors) - 90)) conv=notrunc 2>dd.err
    refused 1 "" "$TUTTI" train $keys -n 3 --zero 3 --run-dir other --resume "$at"
    [ "$(grep -c "rank [0-2]: .*$file-of-00003.safetensors is damaged: tensor " refused.out)" = 1 ] || { cat refused.out; fail "$file: not said, or more than once"; }
    train copy $keys -n 3 --zero 3 --resume auto
    grep -q "$(basename $at) is skipped: rank [0-2]: .*$file" copy.out || { cat copy.out; fail "$file: not skipped"; }
    same copy whole
done

# The same of a checkpoint in single files.
train alone $keys
[ -e alone/checkpoints/step-00000010/optimizer.safetensors ] || { ls alone/checkpoints/*; fail "no single files"; }
cp alone/checkpoints/step-00000005/optimizer.safetensors alone/checkpoints/step-00000010
said="optimizer.safetensors is of step 5, and state.json beside it of step 10"
! verify alone/checkpoints/step-00000010 && grep -q "$said" verify.out || { cat verify.out; fail "verify takes the optimizer of another step"; }
refused 1 "$said" "$TUTTI" train $keys --run-dir other --resume alone/checkpoints/step-00000010
refused 1 "$said" "$TUTTI" train $keys -n 2 --zero 1 --run-dir other --resume alone/checkpoints/step-00000010

# A file that a limit cuts: the state of that step is not saved, all ranks go on, and nothing is left.
code=0
(ulimit -f 40 && exec "$TUTTI" train --run-dir small $keys -n 3 --zero 1) >small.out 2>&1 || code=$?
[ $code = 4 ] || { cat small.out; fail "exit code $code where files are limited"; }
grep -q 'the state of step 5 is not saved: .*File too large; training continues' small.out || { cat small.out; fail "not said"; }
nothing_left small
if command -v strace >strace.path && strace -f -o trace -e trace=fsync true 2>strace.err; then
    traced=(env "ASAN_OPTIONS=${ASAN_OPTIONS-}:detect_leaks=0" strace -f -o trace)
    for rule in write:error=ENOSPC fsync:error=EIO pread64:error=EIO; do
        file=failed/checkpoints/step-00000010.tmp/$second
        timeout 100 "${traced[@]}" -e "trace=${rule%%:*}" -e "inject=$rule" -P "$file" -P "$work/$file" \
            "$TUTTI" train --run-dir failed $keys -n 3 --zero 1 >failed.out 2>&1 || { cat failed.out; fail "$rule"; }
        grep -q INJECTED trace || fail "$rule: nothing was injected"
        grep -q 'the state of step 10 is not saved: rank [12]: .*step-00000005 is intact; training continues' failed.out || { cat failed.out; fail "$rule: not said"; }
        [ ! -e failed/checkpoints/step-00000010 ] && verify failed || { cat verify.out; fail "$rule: verify"; }
        nothing_left failed
        same failed whole
        rm -rf failed
    done
    # A rank is killed while it writes, syncs, reads back, or renames: the checkpoint before is whole, and the run resumes from there.
    for at in openat:$second write:$second fsync:$second pread64:$second write:optimizer.safetensors.index.json fsync:state.json renameat2:; do
        call=${at%%:*} file=killed/checkpoints/step-00000010.tmp/${at#*:}
        code=0
        timeout 100 "${traced[@]}" -e "trace=$call" -e "inject=$call:signal=KILL" -P "${file%/}" -P "$work/${file%/}" \
            "$TUTTI" train --run-dir killed $keys -n 3 --zero 1 >killed.out 2>&1 || code=$?
        [ $code = 137 ] || { cat killed.out; fail "exit code $code: killed at $at"; }
        verify killed || { cat verify.out; fail "killed at $at: damaged"; }
        [ -d killed/checkpoints/step-00000005 ] || fail "killed at $at: the checkpoint before is gone"
        case $at in write:$second | fsync:$second | pread*) nothing_left killed ;; esac # else it was rank 0, whose folder the next run removes
        train killed $keys -n 3 --zero 1 --resume auto
        same killed whole
        nothing_left killed
        rm -rf killed
    done
else
    echo "skipped: no strace, or it may not trace: $(cat strace.err)"
fi
echo "parts are one"
