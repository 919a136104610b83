"""Opening a table with many active instants, and reading the times of many archived ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.data import CACHE, MorTable, build
from lakewright.format.history import read_history
from lakewright.format.properties import load_properties
from lakewright.format.timeline import load_timeline
from lakewright.runtime.clock import SystemClock
from lakewright.storage.resolve import open_storage

PROPERTIES = """#bench
hoodie.table.name=history
hoodie.table.type=MERGE_ON_READ
hoodie.table.version=8
hoodie.table.initial.version=8
hoodie.timeline.layout.version=2
hoodie.timeline.path=timeline
hoodie.timeline.history.path=history
hoodie.record.merge.mode=COMMIT_TIME_ORDERING
hoodie.record.merge.strategy.id=ce9acb64-bde0-424c-9b91-f6ebba25356d
hoodie.datasource.write.drop.partition.columns=false
"""


def _active(instants: int) -> Path:
    path = CACHE / f"active-{instants}"
    timeline = path / ".hoodie" / "timeline"
    if not (path / ".hoodie" / "hoodie.properties").exists():
        timeline.mkdir(parents=True, exist_ok=True)
        for i in range(instants):
            t = str(20260101000000000 + i * 10)
            (timeline / f"{t}.deltacommit.requested").touch()
            (timeline / f"{t}.deltacommit.inflight").touch()
            (timeline / f"{t}_{int(t) + 5}.deltacommit").touch()
        (path / ".hoodie" / "hoodie.properties").write_text(PROPERTIES)
    return path


def open_active(params: dict[str, Any]) -> Callable[[], object]:
    """Properties and active timeline of a table."""
    storage = open_storage(_active(params["instants"]))

    def call() -> object:
        properties = load_properties(storage, clock=SystemClock())
        return len(load_timeline(storage, properties).instants)

    return call


def _archived(instants: int, files: int) -> Path:
    path = CACHE / f"archived-{instants}-{files}"
    history = path / ".hoodie" / "timeline" / "history"
    if not (path / ".hoodie" / "hoodie.properties").exists():
        history.mkdir(parents=True, exist_ok=True)
        entries = []
        for part in np.array_split(np.arange(instants), files):
            times = pa.array((20000101000000000 + part * 1000).astype(str))
            done = pa.array((20000101000000500 + part * 1000).astype(str))
            rows = pa.table(
                {
                    "instantTime": times,
                    "completionTime": done,
                    "action": pa.array(np.full(len(part), "deltacommit")),
                    "metadata": pa.array([b"x" * 200] * len(part)),
                    "plan": pa.nulls(len(part), pa.binary()),
                    "version": pa.array(np.ones(len(part), np.int32)),
                }
            )
            name = f"{times[0]}_{times[-1]}_{1 if files < 100 else 0}.parquet"
            pq.write_table(rows, history / name, compression="gzip", row_group_size=len(part))
            entries.append({"fileName": name, "fileLen": (history / name).stat().st_size})
        (history / "manifest_1").write_text(json.dumps({"files": entries}))
        (history / "_version_").write_text("1")
        (path / ".hoodie" / "hoodie.properties").write_text(PROPERTIES)
    return path


def open_archived(params: dict[str, Any]) -> Callable[[], object]:
    """Requested and completion times of all archived instants, in a process that has read some."""
    read = _reader(params)
    read()
    return read


def open_archived_first(params: dict[str, Any]) -> Callable[[], object]:
    """The same as the first thing a process does."""
    return _reader(params)


def _reader(params: dict[str, Any]) -> Callable[[], object]:
    storage = open_storage(_archived(params["instants"], params["files"]))
    properties = load_properties(storage, clock=SystemClock())
    times = ("requested_time", "completion_time")
    return lambda: read_history(storage, properties, columns=times).num_rows


def cold_plan(params: dict[str, Any]) -> Callable[[], object]:
    """Open a table and plan a scan."""
    import lakewright as lw

    path = build(MorTable(**params["table"]))
    return lambda: len(lw.Table.open(path).scan(limit=1).plan().tasks)


CONTENDERS = {
    "active": open_active,
    "archived": open_archived,
    "archived_first": open_archived_first,
    "cold_plan": cold_plan,
}


def check(result: object) -> str:
    """The number of instants or tasks."""
    return str(result)
