# Logs of a run in the usual readers, if installed: TensorBoard, W&B, polars, pandas.   timeout: 180
# SPDX-License-Identifier: MIT
#
# TUTTI_TEST_PYTHON names a Python that has (some of) them: pip install tensorboard wandb polars pandas
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
python=$(command -v "${TUTTI_TEST_PYTHON:-python3}") || { echo "skipped: no python3"; exit 77; }
has() { "$python" -c "import importlib.util as u, sys; sys.exit(not u.find_spec('$1'))"; }
found=
for package in tensorboard wandb polars pandas; do has $package && found="$found $package"; done
[ "$found" ] || { echo "skipped: $python has none of tensorboard, wandb, polars, pandas; TUTTI_TEST_PYTHON names another"; exit 77; }
unset "${!WANDB_@}" TUTTI_TEST_PYTHON
export PYTHONDONTWRITEBYTECODE=1 HOME=$work
mlp="--model mlp --augment off --threads 1 --log-every 3"

# Interrupted and resumed, so that there are two files.
train run $mlp --epochs 3 --max-steps 50 --schedule constant --tensorboard --histograms 20 --wandb offline --system-metrics
train run $mlp --epochs 3 --schedule constant --tensorboard --histograms 20 --wandb offline --system-metrics --resume auto

case $found in *tensorboard*)
    "$python" - 2>tensorboard.err <<'PYTHON' || { cat tensorboard.err; fail "TensorBoard's own reader"; }
import json, struct
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

lines = [json.loads(l) for l in open("run/metrics.jsonl")]
steps = [l for l in lines if "step" in l]
all_ = EventAccumulator("run/tensorboard", size_guidance={"scalars": 0, "histograms": 0, "tensors": 0})
all_.Reload()
tags = all_.Tags()
named = {"epoch", "loss/train", "lr", "grad_norm", "throughput/images_per_s", "time/compute_ms", "time/communication_ms", "time/wait_ms",
         "time/data_ms", "loss/validation", "accuracy/validation", "system/cpu_percent", "system/process_cpu_percent", "system/load",
         "system/rss_bytes", "system/memory_bytes", "system/memory_percent", "system/disk_free_bytes", "system/network_sent_bytes",
         "system/network_received_bytes"}
# The kernel counts busy time in 10 ms: a shorter run has no cpu_percent.
assert set(tags["scalars"]) | {"system/cpu_percent"} == named, set(tags["scalars"]) ^ named
f32 = lambda x: struct.unpack("<f", struct.pack("<f", x))[0]
assert [(p.step, p.value) for p in all_.Scalars("lr")] == [(l["step"], f32(l["lr"])) for l in steps]
assert [p.step for p in all_.Scalars("loss/train")] == sorted({l["step"] for l in steps}), "one curve"
assert len(tags["histograms"]) == 8 and [h.step for h in all_.Histograms("gradients/fc1.weight")] == [20, 40, 60, 80, 100, 120]
assert b"| batch_size | 32 |" in all_.Tensors("config")[0].tensor_proto.string_val[0]
plugin = all_.PluginTagToContent("hparams")
assert set(plugin) == {"_hparams_/session_start_info", "_hparams_/session_end_info"}
PYTHON
esac

case $found in *wandb*)
    "$python" "$SOURCE_DIR/tests/harness/wandb_server.py" port >server.out 2>server.err &
    server=$!
    until [ -e port ] || ! kill -0 $server 2>/dev/null; do pause 10; done
    WANDB_BASE_URL=http://127.0.0.1:$(cat port) WANDB_API_KEY=$(printf '%040d' 0) WANDB_ERROR_REPORTING=false \
        timeout 180 "$python" -m wandb sync run/wandb/latest-run/ >sync.out 2>&1 || { cat sync.out; fail "wandb sync"; }
    kill $server && wait $server || fail "the server's end"
    "$python" - <<'PYTHON' || { cat sync.out; fail "what wandb sync sent"; }
import glob, json

told = json.load(open("server.out"))
lines = [json.loads(l) for l in open("run/metrics.jsonl")]
steps = [l for l in lines if "step" in l and l["step"] > 50]
history = [json.loads(l) for l in told["lines"]["wandb-history.jsonl"]]
assert [(h["_step"], h["lr"]) for h in history if "lr" in h] == [(l["step"], l["lr"]) for l in steps]
assert all(h["_runtime"] >= 0 and h["_timestamp"] > 1.7e9 for h in history)
assert told["upserts"][0]["project"] == "tutti" and told["upserts"][0]["groupName"] == told["upserts"][0]["displayName"] == "run"
config = json.loads(told["upserts"][-1]["config"])
assert config["batch_size"]["value"] == 32 and config["model"]["value"] == "mlp" and config["world_size"]["value"] == 1
assert any("system.memory_percent" in l for l in told["lines"]["wandb-events.jsonl"])
summary = json.loads(told["lines"]["wandb-summary.json"][-1])
assert summary["status"] == "completed" and 0.5 < summary["accuracy/validation"] <= 1
assert told["exitcode"] == 0 and "wandb-metadata.json" in told["uploaded"], told["uploaded"]
PYTHON
esac

# A column has one type, from the first line on: polars reads the type from a few lines only and rejects others.
grep '^{"step"' run/metrics.jsonl >steps.jsonl
case $found in *polars*)
    "$python" - <<'PYTHON' || fail "polars"
import io, polars as pl

steps = pl.read_ndjson("steps.jsonl", infer_schema_length=1)
assert steps.schema["step"] == steps.schema["epoch"] == pl.Int64, steps.schema
known = [n for n in steps.columns if steps[n].null_count() < len(steps)]  # loss_scale is amp's
assert set(steps.columns) - set(known) <= {"loss_scale"} and steps[known].null_count().sum_horizontal().item() == 0
assert {steps.schema[n] for n in known if n not in ("step", "epoch")} == {pl.Float64}, steps.schema
assert steps["step"].is_sorted()
whole = pl.read_ndjson("run/metrics.jsonl", infer_schema_length=None)
assert {"step", "eval", "system"} <= set(whole.columns)
assert whole["eval"].drop_nulls().struct.field("step").to_list() == [45, 50, 90, 135]
PYTHON
esac
case $found in *pandas*)
    "$python" - <<'PYTHON' || fail "pandas"
import pandas as pd

steps = pd.read_json("steps.jsonl", lines=True)
assert steps["step"].dtype == "int64" and steps["loss"].dtype == "float64" and steps["step"].is_unique
evals = pd.json_normalize(pd.read_json("run/metrics.jsonl", lines=True)["eval"].dropna().tolist())
assert list(evals["epoch"]) == [1, 2, 2, 3] and evals["step"].dtype == "int64"
PYTHON
esac
echo "read by$found"
