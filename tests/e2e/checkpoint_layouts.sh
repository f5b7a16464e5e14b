# A checkpoint of ZeRO-3 on 4 ranks, read by one rank, by a pipeline of 2 with 2 data ranks, by tensor parallel, and by Hugging Face's loader:
# the same weights, averages and state, and the run goes on as from a checkpoint that no layout has divided.   timeout: 300
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"

keys="--model gpt2 --data shakespeare --layers 4 --heads 2 --width 32 --context 16 --batch-size 4 --threads 1 --checkpoint-every 2 --keep-checkpoints 0 --optimizer adamw --schedule constant --eval-every 0 --sample-tokens 0 --ema 0.9 --grad-accumulation 2"
both() { echo "$(digest "$1") $(field "$1/summary.json" ema_digest)"; }

train zero3 $keys --max-steps 2 -n 4 --zero 3 --bucket-mb 0.05 --first-bucket-mb 0.02
train plain $keys --max-steps 2 -n 4
[ "$(both zero3)" = "$(both plain)" ] || fail "zero 3 has other weights"
[ "$(ls zero3/checkpoints/latest | grep -c '^model-0000.-of-00004')" = 4 ] && [ -e plain/checkpoints/latest/model.safetensors ] || { ls */checkpoints/latest; fail "which files are there?"; }
for layout in "-n 1" "-n 4 --pipeline 2" "-n 4 --pipeline 2 --zero 1" "-n 2 --tensor 2"; do
    rm -rf ended from.zero3 from.plain
    train ended $keys --max-steps 2 $layout --resume zero3/checkpoints/latest
    [ "$(both ended)" = "$(both zero3)" ] || fail "$layout reads other weights"
    for of in zero3 plain; do
        train from.$of $keys --max-steps 4 $layout --resume $of/checkpoints/latest
    done
    [ "$(both from.zero3)" = "$(both from.plain)" ] && [ "$(digest from.plain)" != "$(digest plain)" ] || fail "$layout goes on in another way"
done

for weights in model ema; do
    "$TUTTI" checkpoint export zero3 --hf hf.zero3.$weights --weights $weights >export.out && "$TUTTI" checkpoint export plain --hf hf.plain.$weights --weights $weights >export.out || { cat export.out; fail "export"; }
    diff -r hf.zero3.$weights hf.plain.$weights || fail "other folders of Hugging Face ($weights)"
done
train back $keys --max-steps 1 --lr 0 --init hf.zero3.model
[ "$(digest back)" = "$(digest zero3)" ] || fail "the folder of Hugging Face has other weights"
python=${TUTTI_TEST_PYTHON:-python3}
if "$python" -c 'import torch, transformers, safetensors' 2>python.err; then
    # the index of the parts is Hugging Face's: its loader takes the checkpoint's folder as it is
    cp -rL zero3/checkpoints/latest parts && cp hf.zero3.model/*.json parts && rm -f parts/state.json
    "$python" - <<'END' || fail "Hugging Face's loader reads other weights"
import torch
from transformers import AutoModelForCausalLM
whole, parts = (AutoModelForCausalLM.from_pretrained(d).state_dict() for d in ("hf.plain.model", "parts"))
assert whole.keys() == parts.keys() and all(torch.equal(whole[k], parts[k]) for k in whole)
END
else
    echo "skipped: $python has no transformers"
fi
echo "one checkpoint, all layouts"
