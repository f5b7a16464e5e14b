# test_flight_recorder.py -- records of failed groups in the form of PyTorch's analyzer.   SPDX-License-Identifier: MIT
from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import conftest
import pytest
import torch.distributed as dist
from releases import needs
from tutti_torch import flight_recorder

OTHER_CALLS = """
import sys, torch, torch.distributed as dist
import tutti_torch
rank, world, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
dist.init_process_group("tutti", init_method="file://" + path, rank=rank, world_size=world)
dist.all_reduce(torch.ones(5))
dist.all_gather([torch.ones(2) for _ in range(world)], torch.ones(2))
try:
    if rank == 1:
        dist.broadcast(torch.ones(7), 0)
    else:
        dist.all_reduce(torch.ones(7))
except RuntimeError:
    sys.exit(7)
"""


def test_pytorchs_analyzer_names_the_rank_with_another_call(
    implementation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports, out = tmp_path / "reports", tmp_path / "out"
    monkeypatch.setenv("TUTTI_FLIGHT_DIR", str(reports))
    done = conftest.run_program(OTHER_CALLS, 3, "", implementation)
    assert [d.returncode for d in done] == [7, 7, 7], done[0].stderr
    flight_recorder.main([str(reports), str(out)])
    assert sorted(p.name for p in out.iterdir()) == ["rank_0", "rank_1", "rank_2"]
    if importlib.util.find_spec("torch.distributed.flight_recorder") is None:
        pytest.skip("this PyTorch has no analyzer")
    analyzer = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace"]
    analysis = subprocess.run(
        [*analyzer, str(out), "--prefix", "rank_"], capture_output=True, text=True, timeout=conftest.LIMIT_S
    )
    said = analysis.stdout + analysis.stderr
    assert "Culprit rank 1" in said and "COLLECTIVE_TYPE_MISMATCH" in said, said
    assert "unrecognized" not in said


def test_what_is_no_report_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="TUTTI_FLIGHT_DIR names the folder"):
        flight_recorder.main([str(tmp_path), str(tmp_path / "out")])
    path = tmp_path / "flight-g-rank-0.json"
    for text, why in (("{", "not a report"), ("[1]", "not a report"), ('{"version": 9}', "version 9, expected 1")):
        path.write_text(text)
        with pytest.raises(SystemExit, match=f"{path.name}: {why}"):
            flight_recorder.main([str(tmp_path), str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


def test_reports_of_two_groups_become_one_file() -> None:
    def report(group: str) -> dict:
        text = (
            '{"version": 1, "size": 2, "rank": 0, "world_rank": 3, "group": "%s", "time": 9.5, "members": [3, 5], '
            '"calls": [{"sequence": 0, "count": 4, "op": "reduce_scatter", "dtype": "BF16", "state": "queued"}, '
            '{"sequence": 1, "count": 1, "op": "alloc", "dtype": "U8", "state": "queued"}]}'
        )
        return json.loads(text % group)

    dumps = flight_recorder.convert([report("a"), report("b")])
    assert list(dumps) == [3] and list(dumps[3]["pg_config"]) == ["a", "b"]
    assert dumps[3]["pg_config"]["a"]["ranks"] == "[3, 5]"
    first, second = dumps[3]["entries"]
    assert (first["record_id"], second["record_id"]) == (0, 1)
    assert first["input_sizes"] == [[8]] and first["output_sizes"] == [[4]]
    assert first["input_dtypes"] == ["BFloat16"] and first["state"] == "scheduled"


RECORDED = """
import sys, torch, torch.distributed as dist
import tutti_torch
rank, world, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
dist.init_process_group("tutti", init_method="file://" + path, rank=rank, world_size=world)
dist.all_reduce(torch.ones(5))
print(len(dist.distributed_c10d._world.pg_flight_recorder_hooks))
dist.destroy_process_group()
"""


@needs(hasattr(dist.distributed_c10d, "_maybe_attach_flight_recorder"), "recorder for all backends")
@pytest.mark.parametrize("variable", ["", "TORCH_FR_BUFFER_SIZE"])
def test_pytorchs_recorder_is_there_if_it_is_asked_for(
    implementation: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable:
        monkeypatch.setenv(variable, "100")
    for done in conftest.run_program(RECORDED, 1, "", implementation):
        assert done.returncode == 0, done.stderr
        assert (int(done.stdout) > 0) == bool(variable)
