"""Services of ours, each in a process of its own: where its time goes, how much memory it takes.

`profile` runs a compaction in one thread and counts every moment for the innermost step that is
named below; the others watch resident memory while they run.
"""

from __future__ import annotations

import gc
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakewright import Table
from lakewright.engine.log_rows import stored_rows
from lakewright.format.log_block import read_blocks
from lakewright.format.records import WriteStat
from lakewright.services.compaction import Compaction, SliceWork
from lakewright.services.service_options import compaction_options
from lakewright.txn.access import Access

STEPS = {
    "read and decode base files": (
        "lakewright.engine.base_reader:read_row_group",
        "lakewright.engine.base_reader:open_parquet",
    ),
    "read logs and find blocks": ("lakewright.engine.log_reader:LogReader.select",),
    "decode log rows (Avro)": ("lakewright.engine.log_reader:avro_batches",),
    "one version per key": (
        "lakewright.merge.fold:LogVersions.add_rows",
        "lakewright.merge.fold:LogVersions.finish",
    ),
    "find base rows in the logs": ("lakewright.merge.state:LogState.locate",),
    "lay versions over base rows": ("lakewright.merge.state:LogState.apply",),
    "meta columns": ("lakewright.engine.meta_columns:Stamp.copied",),
    "bloom filter and key bounds": (
        "lakewright.engine.base_footer:FooterKeys.inherited",
        "lakewright.engine.base_footer:FooterKeys.add",
        "lakewright.engine.base_footer:FooterKeys.values",
    ),
    "encode and compress (Parquet)": (
        "lakewright.codec.parquet_successor:_encoded",
        "lakewright.codec.parquet_writer:ParquetSink._write_group",
    ),
    "put row groups together": ("lakewright.codec.parquet_splice:Splice.take",),
}
REST = "plan, lock, fsync, commit"
LOOK_S = 0.002


# ---- time --------------------------------------------------------------------------------------


@dataclass
class Steps:
    """CPU seconds by step; the innermost step that is running gets them."""

    spent: dict[str, float] = field(default_factory=dict)
    _running: list[str] = field(default_factory=lambda: [REST])
    _since: float = 0.0

    def begin(self) -> None:
        """From now on time counts."""
        self._since = time.process_time()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """What happens inside is this step."""
        self.settle()
        self._running.append(name)
        try:
            yield
        finally:
            self.settle()
            self._running.pop()

    def settle(self) -> None:
        """Count the time since the last change."""
        now = time.process_time()
        name = self._running[-1]
        self.spent[name] = self.spent.get(name, 0.0) + now - self._since
        self._since = now

    def watch(self, place: str, name: str) -> None:
        """Let a function, or each step of an iterator that it returns, count as a step."""
        module, _, path = place.partition(":")
        owner: Any = import_module(module)
        *outer, last = path.split(".")
        for part in outer:
            owner = getattr(owner, part)
        found = vars(owner)[last]
        call = found.__func__ if isinstance(found, classmethod) else found

        @wraps(call)
        def counted(*args: Any, **kwargs: Any) -> Any:
            with self.step(name):
                made = call(*args, **kwargs)
            return self._each(made, name) if isinstance(made, Iterator) else made

        setattr(owner, last, classmethod(counted) if isinstance(found, classmethod) else counted)

    def _each(self, items: Iterator[Any], name: str) -> Iterator[Any]:
        while True:
            with self.step(name):
                item = next(items, None)
            if item is None:
                return
            yield item


def profile(params: dict[str, Any]) -> Callable[[], object]:
    """A compaction in one thread, by steps; the first one, of a copy, loads what is loaded once."""
    service = _compaction(params)
    steps = Steps()
    for name, places in STEPS.items():
        for place in places:
            steps.watch(place, name)

    def call() -> object:
        steps.begin()
        service.run()
        steps.settle()
        return steps.spent

    return call


def _compaction(params: dict[str, Any]) -> Compaction:
    table = Table.open(params["path"])
    told = {
        "hoodie.compact.inline.max.delta.commits": "1",
        "hoodie.parquet.compression.codec": params["codec"],
    }
    access, write = table.opened(told)
    return Compaction(access, compaction_options(told), write)


# ---- memory ------------------------------------------------------------------------------------


class Watch:
    """The peak of resident anonymous memory, looked at all the time."""

    def __init__(self) -> None:
        gc.collect()
        self.before = self.peak = _anonymous()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while not self._done.wait(LOOK_S):
            self.peak = max(self.peak, _anonymous())

    def end(self) -> dict[str, int]:
        """Bytes before, and at the peak."""
        self._done.set()
        self._thread.join()
        return {"before": self.before, "peak": self.peak}


def _anonymous() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) << 10
    raise AssertionError("no RssAnon in /proc/self/status")


def task(params: dict[str, Any]) -> Callable[[], object]:
    """One slice, as a task compacts it."""
    service = _compaction(params)
    folder = Path(params["path"])
    said: dict[str, int] = {}

    def compactor(access: Access, work: SliceWork) -> Sequence[WriteStat]:
        slices = replace(work.compactor, merge_memory=params["merge_memory"])
        work = replace(work, compactor=slices)
        pool = pa.default_memory_pool()
        pool.release_unused()
        held = pool.bytes_allocated()
        watch = Watch()
        stats = [
            work.compact(access.storage, number, access, alone=False)
            for number in range(len(work.slices))
        ]
        found = watch.end()
        said["peak"] = found["peak"] - found["before"]
        said["arrow"] = pool.max_memory() - held
        return stats

    def call() -> object:
        [base] = folder.glob("*.parquet")
        replace(service, compactor=compactor).run()
        # Afterwards: an allocator that keeps what this used would give it to the task.
        file = pq.ParquetFile(base)
        said["row_group"] = max(file.read_row_group(n).nbytes for n in range(file.num_row_groups))
        said["log"] = sum(
            stored_rows(read_blocks(log.read_bytes(), path=log.name)).nbytes
            for log in folder.glob(".*.log.*")
            if not log.name.endswith(".crc")
        )
        return said

    return call


def clean_plan(params: dict[str, Any]) -> Callable[[], object]:
    """Planning a clean, changing nothing."""
    table = Table.open(params["path"])

    def call() -> object:
        watch = Watch()
        plan = table.services.clean.plan({"hoodie.clean.commits.retained": "5"})
        assert plan is not None
        return watch.end()

    return call


def archive(params: dict[str, Any]) -> Callable[[], object]:
    """Archiving all but twenty commits."""
    table = Table.open(params["path"])

    def call() -> object:
        watch = Watch()
        table.services.archive.run()
        return watch.end()

    return call


CONTENDERS = {"profile": profile, "task": task, "clean_plan": clean_plan, "archive": archive}


def check(result: object) -> str:
    """What was found out, as JSON."""
    return json.dumps(result)
