# flight_recorder.py -- Tutti's records of the last collectives, for PyTorch's analyzer.   SPDX-License-Identifier: MIT
"""When a group fails, each rank writes flight-GROUP-rank-N.json into the folder TUTTI_FLIGHT_DIR.

  python3 -m tutti_torch.flight_recorder FOLDER OUT      makes OUT/rank_0, OUT/rank_1, ... of them
  torchfrtrace OUT --prefix rank_                        PyTorch's analyzer of such files (2.5 and later)
"""

from __future__ import annotations

import argparse
import json
import pickle
import sys
from pathlib import Path
from typing import Any

VERSION = "2.10"  # of the format of PyTorch's files
STATES = {"done": "completed", "running": "started", "queued": "scheduled"}
# PyTorch's name, and the tensors that go in and out: multiples of the call's count, where "all" is the group's size.
OPS: dict[str, tuple[str, int | str, int | str]] = {
    "all_reduce": ("all_reduce", 1, 1),
    "reduce": ("reduce", 1, 1),
    "broadcast": ("broadcast", 1, 1),
    "reduce_scatter": ("_reduce_scatter_base", "all", 1),
    "all_gather": ("_all_gather_base", 1, "all"),
    "all_to_all": ("all_to_all_single", "all", "all"),
    "gather": ("gather", 1, "all"),
    "scatter": ("scatter", "all", 1),
    "barrier": ("barrier", 0, 0),
    # the record has no counts for pieces that differ
    "all_gather_v": ("all_gather_v", 0, 0),
    "all_to_all_v": ("all_to_all_v_single", 0, 0),
}
DTYPES = {
    "F32": "Float",
    "F64": "Double",
    "F16": "Half",
    "BF16": "BFloat16",
    "I8": "Char",
    "U8": "Byte",
    "I16": "Short",
    "I32": "Int",
    "I64": "Long",
    "U16": "UInt16",
    "U32": "UInt32",
    "U64": "UInt64",
}


def _entry(call: dict[str, Any], report: dict[str, Any], number: int) -> dict[str, Any]:
    name, given, taken = OPS[call["op"]]
    dtype = DTYPES.get(call["dtype"], call["dtype"])

    def sizes(multiple: int | str) -> list[list[int]]:
        return [[call["count"] * (report["size"] if multiple == "all" else int(multiple))]]

    def ns(key: str) -> int | None:
        return int(call[key] * 1e9) if key in call else None

    began, ended = ns("began"), ns("ended")
    return {
        "record_id": number,
        "pg_id": 0,
        "process_group": (report["group"], report["group"]),
        "collective_seq_id": call["sequence"],
        "p2p_seq_id": 0,
        "op_id": call["sequence"],
        "profiling_name": f"gloo:{name}",  # the analyzer refuses (2.14) backends that it does not know
        "time_created_ns": began or int(report["time"] * 1e9),
        "time_discovered_started_ns": began,
        "time_discovered_completed_ns": ended,
        "duration_ms": (ended - began) / 1e6 if began and ended else None,
        "input_sizes": sizes(given),
        "input_dtypes": [dtype],
        "output_sizes": sizes(taken),
        "output_dtypes": [dtype],
        "state": STATES[call["state"]],
        "timeout_ms": 0,
        "is_p2p": False,
        "retired": call["state"] == "done",
        "frames": [],
    }


def convert(reports: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """What PyTorch's files of these reports contain, by rank. Reports of several groups of a rank become one."""
    dumps: dict[int, dict[str, Any]] = {}
    for report in reports:
        dump = dumps.setdefault(
            report["world_rank"],
            {"version": VERSION, "pg_config": {}, "pg_status": {}, "entries": []},
        )
        name = report["group"]
        dump["pg_config"][name] = {"name": name, "desc": name, "ranks": str(report["members"])}
        for call in report["calls"]:
            if call["op"] in OPS:
                dump["entries"].append(_entry(call, report, len(dump["entries"])))
    return dumps


def _read(path: Path) -> dict[str, Any]:
    try:
        report: dict[str, Any] = json.loads(path.read_text())
        known = report["version"] == 1
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"{path}: not a report of Tutti's flight recorder: {error}") from None
    if not known:
        raise SystemExit(f"{path}: version {report['version']}, expected 1")
    return report


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python3 -m tutti_torch.flight_recorder",
        description="Makes files for PyTorch's analyzer, torchfrtrace, of those in TUTTI_FLIGHT_DIR.",
    )
    parser.add_argument("folder", type=Path, help="with flight-GROUP-rank-N.json")
    parser.add_argument("out", type=Path, help="gets rank_0, rank_1, ...")
    options = parser.parse_args(arguments)
    paths = sorted(options.folder.glob("flight-*-rank-*.json"))
    if not paths:
        raise SystemExit(
            f"{options.folder}: no flight-GROUP-rank-N.json there; TUTTI_FLIGHT_DIR names the folder "
            "to which ranks of a failed group write them, except under tutti run"
        )
    dumps = convert([_read(path) for path in paths])
    options.out.mkdir(parents=True, exist_ok=True)
    for rank, dump in dumps.items():
        (options.out / f"rank_{rank}").write_bytes(pickle.dumps(dump))
    print(f"{len(paths)} reports of {len(dumps)} ranks: torchfrtrace {options.out} --prefix rank_")


if __name__ == "__main__":
    main(sys.argv[1:])
