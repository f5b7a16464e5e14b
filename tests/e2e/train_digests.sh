# The record of digests: complete, the same values as an independent reader finds in the weights, without effect on the training, and
# in accord between ranks, layouts and repetitions.   timeout: 180
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
command -v python3 >/dev/null || { echo "skipped: no python3 to read the files with"; exit 77; }
export PYTHONPATH=$SOURCE_DIR/tests/harness PYTHONDONTWRITEBYTECODE=1
read_back() { # WHAT, a program on standard input
    { printf 'import json, math, struct\nfrom digests import *\n'; cat; } >check.py
    python3 check.py || fail "$1"
}
recorded() { # DIR ARGUMENTS...: with a record of each step, and without: the same weights
    local dir=$1
    shift
    train "$dir" "$@" --trace-digests 1
    train "$dir.off" "$@" --trace-digests 0
    same "$dir" "$dir.off"
    [ ! -e "$dir.off/digests" ] || fail "a record that was not asked for"
}
mlp="--model mlp --threads 1 --eval-every 0 --max-steps 4 --batch-size 16"
gpt2="--model gpt2 --data shakespeare --layers 2 --heads 2 --width 16 --context 8 --batch-size 2 --threads 1 --eval-every 0 --sample-tokens 0 --max-steps 3"

# ---- Plain: what is in it, and what it says.
recorded plain -n 2 $mlp --optimizer adamw --clip-grad-norm 0.05 --log-every 1
read_back "a record of two ranks" <<'PYTHON'
a, b = record("plain", 0), record("plain", 1)
lines = [json.loads(l) for l in open("plain/digests/rank-0.jsonl")]
assert lines[0]["format"] == 2 and lines[0]["step"] == 0 and lines[0]["world_size"] == 2 and lines[0]["framework"] == "tutti"
assert [l["step"] for l in lines[1:]] == [0, 1, 2, 3, 4] and all(l["rank"] == 0 for l in lines)
assert {e[0] for e in lines[1]["entries"]} == {"initial"}
parameters = ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]
metrics = [json.loads(l) for l in open("plain/metrics.jsonl")]
for line, figures in zip(lines[2:], metrics):
    kinds = [e[0] for e in line["entries"]]
    order = [k for i, k in enumerate(kinds) if k not in kinds[:i]]
    assert order == ["input", "forward", "loss", "backward", "gradient", "reduced", "clipped", "state", "parameter"], order
    assert [e[1] for e in line["entries"] if e[0] == "forward"] == ["fc1", "fc2", ""]
    assert [e[1] for e in line["entries"] if e[0] == "backward"] == ["", "fc2", "fc1"]
    for kind in ("gradient", "reduced", "clipped", "parameter"):
        assert sorted(e[1] for e in line["entries"] if e[0] == kind) == sorted(parameters), kind
    assert len([e for e in line["entries"] if e[0] == "state"]) == 8 and len(line["samples"]) == 32
    step = line["step"]
    norm = math.sqrt(sum(a[step, None, "reduced", p, 0][1] ** 2 for p in parameters))
    assert abs(norm - figures["grad_norm"]) < 1e-5 * norm and abs(line["lr"] - figures["lr"]) < 1e-7
    clipped = math.sqrt(sum(a[step, None, "clipped", p, 0][1] ** 2 for p in parameters))
    assert abs(clipped - 0.05) < 1e-5, clipped
    losses = [r[step, None, "loss", "", 0][1] for r in (a, b)]
    assert abs(sum(losses) / 2 - figures["loss"]) < 1e-5
assert a.keys() == b.keys()
for key in a:  # what ranks have in common, and what not
    kind = key[2]
    same = a[key] == b[key]
    assert same == (kind in ("initial", "reduced", "clipped", "state", "parameter")), key
for step in range(1, 5):  # what an update begins with is what the last one left
    for p in parameters:
        x, y, mean = a[step, None, "gradient", p, 0], b[step, None, "gradient", p, 0], a[step, None, "reduced", p, 0]
        assert abs((x[2] + y[2]) / 2 - mean[2]) < 1e-5 * (x[1] + y[1]), p
tensors = safetensors("plain/model.safetensors")
for p in parameters:  # by a second definition of the digest and both numbers
    norm, dot = numbers(tensors[p])
    assert a[4, None, "parameter", p, 0][0] == digest(tensors[p]), p
    assert abs(norm - a[4, None, "parameter", p, 0][1]) < 1e-9 * norm and abs(dot - a[4, None, "parameter", p, 0][2]) < 1e-9 * norm
PYTHON

# ---- Which steps; the keys' forms.
train some $mlp --max-steps 11 --trace-digests 4 --epochs 1
train auto $mlp --max-steps 11 --epochs 1
train share $mlp --max-steps 11 --epochs 1 --trace-digests
train other $mlp --no-trace-digests
same some auto
same some share
[ ! -e other/digests ] || fail "--no-trace-digests records"
refused 2 "trace_digests: \"often\" is not an integer" "$TUTTI" train $mlp --trace-digests often --run-dir no
read_back "the steps that are recorded" <<'PYTHON'
assert steps("some") == [1, 2, 4, 8], steps("some")
assert steps("auto")[0] == 1 and len(steps("auto")) <= 4, steps("auto")
assert steps("share")[0] == 1 and len(steps("share")) <= 4, steps("share")
first = {k: v for k, v in record("some", 0).items() if k[0] <= 1}
assert all({k: v for k, v in record(run, 0).items() if k[0] <= 1} == first for run in ("auto", "share"))
assert [json.load(open(f"{run}/config.json"))["trace_digests"] for run in ("some", "auto", "share")] == [4, "auto", "2%"]
PYTHON

# ---- Layouts: what ranks have of a tensor adds up to the whole, and DOT counts its elements.
for zero in 0 1 2 3; do
    recorded zero.$zero -n 2 $mlp --optimizer adamw --zero $zero --bucket-mb 0.02 --first-bucket-mb 0.001
done
read_back "shares of ZeRO" <<'PYTHON'
whole = record("zero.0", 0)
for zero in "zero.1", "zero.2", "zero.3":
    parts = added([record(zero, r) for r in range(2)])
    for key, (digest, norm, dot) in whole.items():
        if key[2] not in ("state", "parameter") and not (key[2] == "reduced" and zero != "zero.1"):
            continue
        n, total, norm2, dot2, copies = parts[key]
        norm2, dot2 = norm2 / copies, dot2 / copies
        assert total % (1 << 64) == int(digest, 16) * copies % (1 << 64), (zero, key)
        assert abs(norm * norm - norm2) <= 1e-9 * norm2 and abs(dot - dot2) <= 1e-9 * norm, (zero, key, norm, norm2)
pieces = [k[3] for k in record("zero.3", 0) if k[2] == "parameter"]
assert any("[" in p for p in pieces), pieces
PYTHON

# ---- Shards: each by some rank, with the same digests on any number of them.
recorded shards.1 $mlp --shards 3
recorded shards.2 -n 2 $mlp --shards 3
same shards.1 shards.2
read_back "shards" <<'PYTHON'
one, two = record("shards.1", 0), [record("shards.2", r) for r in range(2)]
for key, value in one.items():
    found = [t[key] for t in two if key in t]
    shard = key[1] is not None
    assert found == [value] * (1 if shard else 2), key
assert {k[1] for k in one if k[2] == "gradient"} == {0, 1, 2}
assert {k[1] for k in one if k[2] in ("reduced", "parameter", "state")} == {None}
PYTHON

# ---- Micro-batches: a pipeline computes what accumulation does, each rank its stages.
recorded whole $gpt2 --grad-accumulation 3
recorded stages -n 2 $gpt2 --pipeline 2 --micro-batches 3
recorded tensor -n 2 $gpt2 --tensor 2
recorded again $gpt2 --grad-accumulation 3 --recompute
same whole stages
read_back "micro-batches" <<'PYTHON'
whole, stages = record("whole", 0), [record("stages", r) for r in range(2)]
assert whole == record("again", 0)
assert {k[4] for k in whole if k[2] in ("forward", "backward", "input", "loss")} == {0, 1, 2}
for rank in stages:
    common = [k for k in rank if k in whole and k[2] not in ("initial", "state", "gradient", "reduced", "clipped")]
    assert len({k[3] for k in common if k[2] == "forward"}) > 4 and len([k for k in common if k[2] == "backward"]) > 12
    for key in common:
        assert rank[key] == whole[key], key
names = {k[3] for k in whole if k[2] == "forward"}
assert {"transformer.wte", "transformer.h.0.attn.c_attn", "transformer.h.1"} <= names, names
assert names == set().union(*({k[3] for k in r if k[2] == "forward"} for r in stages)) | {"", "transformer.h"} & names
PYTHON

# ---- 16 bits, layers in one pass, frozen ones.
recorded bf16 $mlp -n 2 --model mini_resnet --max-steps 2 --batch-size 4 --amp bf16 --freeze stem
recorded lstm -n 2 $mlp --model lstm
read_back "a network" <<'PYTHON'
r = record("bf16", 0)
names = {k[3] for k in r if k[2] == "forward"}
assert {"stem.0", "stem.1+relu", "layers.0.c1", "layers.0.b2+add+relu", "layers.2.sc.0", "fc", ""} <= names, names
assert not any(k[3].startswith("stem") for k in r if k[2] in ("gradient", "reduced", "state"))
assert any(k[3] == "stem.1.running_mean" for k in r if k[2] == "buffer")
assert any(k[2] == "forward" for k in record("lstm", 1))
PYTHON

# ---- Memory that the host cannot read.
for device in cpu strict; do
    TUTTI_KERNELS=reference recorded mlp.$device $mlp --device $device --optimizer adamw
    TUTTI_KERNELS=reference recorded text.$device $gpt2 --device $device --max-steps 1
done
read_back "the strict device" <<'PYTHON'
assert record("mlp.cpu", 0) == record("mlp.strict", 0)
cpu, strict = record("text.cpu", 0), record("text.strict", 0)  # where the logits are stored, and not summed in chunks
assert {k[3] for k in cpu.keys() ^ strict.keys()} == {""} and all(cpu[k] == strict[k] for k in cpu if k[2] == "forward")
PYTHON

# ---- A resumed run goes on with its record, and what it does again replaces what was there.
train resumed $mlp --checkpoint-every 2 --keep-checkpoints 0 --trace-digests 1
cp -r resumed first
rm -r resumed/checkpoints/step-00000004 resumed/summary.json
ln -sfn step-00000002 resumed/checkpoints/latest
train resumed $mlp --checkpoint-every 2 --keep-checkpoints 0 --trace-digests 1 --resume auto
same first resumed
read_back "a resumed record" <<'PYTHON'
lines = [json.loads(l) for l in open("resumed/digests/rank-0.jsonl")]
assert [l["step"] for l in lines] == [0, 0, 1, 2, 3, 4, 2, 2, 3, 4], [l["step"] for l in lines]
first, resumed = record("first", 0), record("resumed", 0)
assert all(resumed[k] == v for k, v in first.items())
PYTHON
train resumed $mlp --trace-digests 1 # anew: the earlier run's is moved with it
read_back "a new run in the folder" <<'PYTHON'
assert [json.loads(l)["step"] for l in open("resumed/digests/rank-0.jsonl")] == [0, 0, 1, 2, 3, 4]
assert open("resumed/earlier-1/digests/rank-0.jsonl").readline()
PYTHON

# ---- A host without the run's folder gets none, unless the record was asked for.
for record in auto 1; do
    mkdir -p there/$record/0 there/$record/1
    TUTTI=$TUTTI timeout 60 "$TUTTI" run -n 2 bash -c "cd there/$record/\$RANK && exec \"\$TUTTI\" train $mlp --run-dir run --trace-digests $record" >there.out 2>&1 ||
        { cat there.out && fail "ranks in two folders"; }
done
[ "$(cd there && find . -name 'rank-*' | sort | tr '\n' ' ')" = "./1/0/run/digests/rank-0.jsonl ./1/1/run/digests/rank-1.jsonl ./auto/0/run/digests/rank-0.jsonl " ] ||
    fail "records: $(find there -name 'rank-*')"

# ---- A record that cannot be written ends, and the run does not.
mkdir -p lost
echo >lost/digests
train lost $mlp --trace-digests 1
same lost first
says lost "trace_digests: cannot open .*digests/rank-0.jsonl.*training continues"
[ "$(grep -c trace_digests lost.out)" = 1 ] || fail "more than one warning"
refused 2 "expected" "$TUTTI" train --model nothing --trace-digests 1 --run-dir failed
[ ! -e failed ] || fail "a run that did not begin leaves its record"
