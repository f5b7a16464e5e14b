# Logs of a run: TensorBoard, W&B, Prometheus, system metrics, read back by independent readers.   timeout: 120
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
command -v python3 >/dev/null || { echo "skipped: no python3 to read the files with"; exit 77; }
unset "${!WANDB_@}"
mlp="--model mlp --augment off --threads 1 --log-every 3"
export PYTHONPATH=$SOURCE_DIR/tests/harness PYTHONDONTWRITEBYTECODE=1
read_back() { # FILE.py from standard input, with what all of them need
    { printf 'import glob, json, os, struct, sys\nimport records as r\n'
      printf 'def lines(run):\n    return [json.loads(l) for l in open(run + "/metrics.jsonl")]\n'
      printf 'def f32(x):\n    return struct.unpack("<f", struct.pack("<f", x))[0]\n'; cat; } >check.py
    python3 check.py "$@" || fail "$1"
}

# ---- Everything on: the files agree with metrics.jsonl.
train run -n 2 $mlp --epochs 2 --tensorboard --histograms 20 --wandb offline --prometheus "$work/node.prom" --system-metrics
read_back "all logs of one run" <<'PYTHON'
steps = [l for l in lines("run") if "step" in l]
evals = [l["eval"] for l in lines("run") if "eval" in l]
systems = [l["system"] for l in lines("run") if "system" in l]
config = json.load(open("run/config.json"))
assert config["world_size"] == 2 and len(systems) >= 1 and len(evals) == 2
assert all(s["step"] in [l["step"] for l in steps] and s["rss_bytes"] > 1e6 and 0 < s["memory_percent"] <= 100 for s in systems)

(path,) = glob.glob("run/tensorboard/events.out.tfevents.*")
told = r.event_file(path)
assert told["order"] == ["brain.Event:2"] and told["times"] == sorted(told["times"])
def curve(tag, name, rows):
    assert told["scalars"][tag] == [(l["step"], f32(l[name])) for l in rows], tag
for tag, name in (("loss/train", "loss"), ("lr", "lr"), ("grad_norm", "grad_norm"), ("throughput/images_per_s", "images_per_s"),
                  ("time/compute_ms", "compute_ms"), ("time/wait_ms", "wait_ms"), ("epoch", "epoch")):
    if name in ("lr", "grad_norm", "epoch"):
        curve(tag, name, steps)
    else:  # nine digits there, a double's own bits here
        assert all(abs(a - l[name]) <= 1e-6 * abs(l[name]) and s == l["step"] for (s, a), l in zip(told["scalars"][tag], steps)), tag
curve("accuracy/validation", "val_accuracy", evals)
assert [s for s, _ in told["scalars"]["loss/validation"]] == [l["step"] for l in evals]
assert len(told["scalars"]["system/rss_bytes"]) == len(systems)
busy = told["scalars"].get("system/cpu_percent", [])  # the kernel counts in 10 ms: a shorter run has none
assert len(busy) <= len(systems) and all(0 <= v <= 100 for _, v in busy), busy
rows = dict(l.strip("|\n").split(" | ") for l in told["texts"]["config"].splitlines()[2:])
assert rows[" model"].strip() == "mlp" and len(rows) == len(config), rows
start, status = r.hparams(told)
assert start == config and status == 1, (start, status)
histograms = told["histograms"]
assert sorted(histograms) == sorted(k + "/" + p for k in ("gradients", "parameters") for p in ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"))
for tag, points in histograms.items():
    assert [s for s, _ in points] == [20, 40], tag
    for _, h in points:
        limits, counts = r.doubles(r.one(h, 6)), r.doubles(r.one(h, 7))
        assert len(limits) == len(counts) and limits == sorted(limits)
        low, high = (r.double(r.one(h, n)) for n in (1, 2))
        assert low < high <= limits[-1]
        assert sum(counts) == r.double(r.one(h, 3)) == {"fc1.weight": 16384, "fc1.bias": 256, "fc2.weight": 2560, "fc2.bias": 10}[tag.split("/")[1]]

(folder,) = glob.glob("run/wandb/offline-run-*")
(path,) = glob.glob(folder + "/run-*.wandb")
assert folder.endswith("-" + path[-14:-6]) and len(path[-14:-6]) == 8
all_ = r.wandb(path)
kinds = [k for k, _ in all_]
assert kinds[:4] == ["header", "run", "environment", "config"] and kinds[-5:] == ["summary", "files", "exit", "final", "footer"], kinds
run = all_[1][1]
assert r.one(run, 1).decode() == path[-14:-6] and r.one(run, 3) == b"tutti" and r.one(run, 6) == b"run" and r.one(run, 8) == b"run"
assert r.items(all_[3][1]) == config
history = [r.items(m) for k, m in all_ if k == "history"]
assert [h["_step"] for h in history] == sorted({l["step"] for l in steps + evals}) and all(type(h["_step"]) is int for h in history)
assert all(h["_timestamp"] > 1.7e9 and h["_runtime"] > 0 for h in history)
assert [(h["_step"], h["loss/train"], h["lr"]) for h in history if "lr" in h] == [(l["step"], l["loss"], l["lr"]) for l in steps]
assert [(h["_step"], h["accuracy/validation"]) for h in history if "accuracy/validation" in h] == [(l["step"], l["val_accuracy"]) for l in evals]
stats = [r.items(m, 3) for k, m in all_ if k == "stats"]
assert len(stats) == len(systems) and {"memory_percent", "proc.memory.rssMB", "network.sent"} <= set(stats[0]), stats
summary = r.items([m for k, m in all_ if k == "summary"][-1])
assert summary["status"] == "completed" and summary["accuracy/validation"] == evals[-1]["val_accuracy"]
assert summary == json.load(open(folder + "/files/wandb-summary.json")) and not r.one([m for k, m in all_ if k == "exit"][0], 1)
machine = json.load(open(folder + "/files/wandb-metadata.json"))
assert machine["program"] == "tutti train", machine
assert machine["cpu_count_logical"] == os.sysconf("SC_NPROCESSORS_ONLN"), machine
lists = glob.glob("/sys/devices/system/cpu/cpu[0-9]*/topology/core_cpus_list")
assert not lists or machine["cpu_count"] == len({open(f).read() for f in lists}), machine # not those of this rank alone
assert "batch_size:\n    value: 32\n" in open(folder + "/files/config.yaml").read()

text = open("node.prom").read()
assert 'tutti_running{run="run",model="mlp",data="digits"} 0\n' in text
assert 'tutti_train_step{run="run",model="mlp",data="digits"} %d\n' % steps[-1]["step"] in text
assert "# TYPE tutti_eval_val_accuracy gauge\n" in text and "tutti_system_rss_bytes{" in text and text.endswith("\n")
names = [l.split()[2] for l in text.splitlines() if l.startswith("# TYPE ")]
assert len(names) == len(set(names)) == len([l for l in text.splitlines() if l.startswith("# HELP ")])
PYTHON

# ---- Killed and resumed: another file that continues from the checkpoint, another W&B run of the same group.
train whole $mlp --epochs 4
timeout 180 "$TUTTI" train --run-dir killed $mlp --epochs 4 --checkpoint-every 20 --tensorboard --wandb offline >killed.out 2>&1 &
job=$!
until [ -e killed/checkpoints/step-00000060 ] || ! kill -0 $job 2>/dev/null; do pause 1; done
pid=$(pgrep -P $job || true)
kill -KILL ${pid:-$job} 2>/dev/null || true
{ wait $job || true; } 2>/dev/null
train killed $mlp --epochs 4 --checkpoint-every 20 --tensorboard --wandb offline --resume auto
same whole killed
read_back "a killed and resumed run" <<'PYTHON'
files = sorted(glob.glob("killed/tensorboard/events.out.tfevents.*"))
told = [r.event_file(f) for f in files]
assert len(told) == 2 or len(told) == 1, files # killed too late on a fast machine
points = {}
for t in told:
    for start in t["starts"]:  # as readers do
        assert t["order"] == ["brain.Event:2", "session log"] and start > 60
        points = {s: v for s, v in points.items() if s < start}
    for s, v in t["scalars"]["loss/train"]:
        assert s not in points, s
        points[s] = v
assert list(points) == sorted(points)
assert [(s, v) for s, v in points.items()] == [(l["step"], f32(l["loss"])) for l in lines("killed") if "step" in l] or \
    all(abs(points[l["step"]] - l["loss"]) < 1e-6 for l in lines("killed") if "step" in l)
assert list(points) == [l["step"] for l in lines("whole") if "step" in l]
runs = [r.wandb(f) for f in glob.glob("killed/wandb/offline-run-*/*.wandb")]
runs.sort(key=lambda run: r.one(run[1][1], 14, 0))
assert len(runs) == len(told)
assert {r.one(x[1][1], 6) for x in runs} == {b"killed"} and len({r.one(x[1][1], 1) for x in runs}) == len(runs)
if len(runs) == 2:
    assert r.one(runs[1][1][1], 14) in (60, 80, 100, 120, 140, 160) and runs[0][-1][0] != "footer" and runs[1][-1][0] == "footer"
PYTHON

# ---- Histograms: ranks that have shares of the weights and gradients, or parts of the layers, count together what one counts alone.
for layout in "plain --zero 0" "zero1 --zero 1" "zero2 --zero 2" "zero3 --zero 3 --bucket-mb 0.05 --first-bucket-mb 0.02" "replicas --zero 2 --zero-ranks 1"; do
    train ${layout%% *} -n 3 $mlp --batch-size 8 --optimizer adamw --max-steps 4 --eval-every 0 --tensorboard --histograms 2 ${layout#* }
done
for run in "alone -n 1" "sharers -n 2 --zero 3"; do # rank 0 reads what the others have
    train $run $mlp --batch-size 8 --shards 2 --optimizer adamw --max-steps 4 --eval-every 0 --tensorboard --histograms 2
done
gpt="--model gpt2 --data shakespeare --layers 1 --heads 2 --width 16 --context 8 --batch-size 4 --max-steps 1 --lr 0 --eval-every 0 --sample-tokens 0 --tensorboard --histograms 1"
train whole $gpt
train parts -n 4 $gpt --batch-size 2 --tensor 2 --zero 1
read_back "histograms of layouts" <<'PYTHON'
def histograms(run):
    (path,) = glob.glob(run + "/tensorboard/events.out.tfevents.*")
    told = r.event_file(path)["histograms"]
    return {t: [(s, *(r.double(r.one(h, n) or bytes(8)) for n in (1, 2, 3)), r.doubles(r.one(h, 6)), r.doubles(r.one(h, 7))) for s, h in p] for t, p in told.items()}
plain = histograms("plain")
assert len(plain) == 8 and all([s for s, *_ in p] == [2, 4] for p in plain.values())
for run in ("zero1", "zero2", "zero3", "replicas"):
    assert histograms(run) == plain, run
assert {t: p for t, p in histograms("alone").items() if t.startswith("parameters/")} == histograms("sharers")
whole, parts = histograms("whole"), histograms("parts")
assert whole.keys() == parts.keys() and len(whole) >= 20
assert all(whole[t] == parts[t] for t in whole if t.startswith("parameters/"))
assert all(whole[t][0][3] == parts[t][0][3] for t in whole)  # as many gradients, of other rounding
PYTHON

# ---- A new run in the same folder: the earlier curves are removed.
train killed $mlp --max-steps 1 --tensorboard
[ "$(ls killed/tensorboard | wc -l)" = 1 ] || fail "event files of two runs in one folder"
train killed $mlp --max-steps 1
[ "$(ls killed/tensorboard | wc -l)" = 0 ] || fail "event files of an earlier run"

# ---- W&B's own variables.
WANDB_PROJECT=p WANDB_ENTITY=e WANDB_RUN_GROUP=g WANDB_NAME=n WANDB_RUN_ID=my-id WANDB_TAGS=a,b WANDB_NOTES=hm \
    train named $mlp --max-steps 1 --wandb offline
read_back "W&B's variables" <<'PYTHON'
(path,) = glob.glob("named/wandb/offline-run-*-my-id/run-my-id.wandb")
run = r.wandb(path)[1][1]
assert [r.one(run, n) for n in (1, 2, 3, 6, 8, 9)] == [b"my-id", b"e", b"p", b"g", b"n", b"hm"] and r.every(run, 10) == [b"a", b"b"]
PYTHON

# ---- A log that cannot be written is reported, and has no other effect.
mkdir bad && touch bad/tensorboard bad/wandb
train bad $mlp --epochs 1 --tensorboard --wandb offline --prometheus /nowhere/at/all.prom --histograms 5
for what in tensorboard wandb prometheus; do
    [ "$(grep -c "$what: .*training continues without it" bad.out)" = 1 ] || { cat bad.out; fail "$what: not printed exactly once"; }
done
train bad $mlp --epochs 1 --prometheus /dev/full
[ "$(grep -c "prometheus: .*training continues without it" bad.out)" = 1 ] || { cat bad.out; fail "a full disk"; }
train own $mlp --epochs 1 --prometheus own/config.json
grep -q "prometheus: own/config.json would write into a run.*training continues without it" own.out || { cat own.out; fail "a run's own file"; }
grep -q '"prometheus": "own/config.json"' own/config.json || fail "--prometheus has replaced the run's config.json"
train bad $mlp --epochs 1 --prometheus /dev/null
[ -c /dev/null ] || fail "/dev/null is not a device any more"
refused 2 "add --tensorboard" "$TUTTI" train $mlp --histograms 5 --run-dir none

# ---- The end of a failed run.
refused 1 "diverged" "$TUTTI" train $mlp --lr 1000 --momentum 1 --weight-decay 1000 --warmup-epochs 0 --run-dir diverged --tensorboard --wandb offline --prometheus d.prom
read_back "a failed run" <<'PYTHON'
(path,) = glob.glob("diverged/tensorboard/*")
assert r.hparams(r.event_file(path))[1] == 2
(path,) = glob.glob("diverged/wandb/offline-run-*/*.wandb")
records = dict(r.wandb(path))
assert r.one(records["exit"], 1) == 1 and "diverged" in r.items(records["summary"])["reason"]
assert 'tutti_running{run="diverged",model="mlp",data="digits"} 0\n' in open("d.prom").read()
PYTHON

echo "logs are right"
