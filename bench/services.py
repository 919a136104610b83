"""Benchmarks of table services: warm processes, interleaved, equal tables before times.

    python -m bench.services [compaction memory clean archive] [--repeat 3] [--small]

Every contender works on a copy of the same table; neither the copying nor the check of what came
out is in the time. Contenders on Spark have `local[2]` and the same heap; their sessions are warm.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.contest import RESULTS, Sample, contest, median, record
from bench.keyed import CODEC, HUDI10, HUDI12, OURS4, OURS35, PLAIN, came_out, copied
from bench.plots import plot_bars
from bench.processes import ROOT, Contender, GoneError, RefusedError, WarmProcess, warm
from bench.report import measure_parts
from bench.run import table_row
from bench.service_tables import LongTimeline, ManyFiles, Merging, linked
from lakewright import Table
from lakewright.format.archived_timeline import archived_times
from lakewright.format.properties import load_properties
from lakewright.format.timeline import load_timeline
from lakewright.runtime.clock import SystemClock
from lakewright.storage.resolve import open_storage

PROGRAM = ROOT / "bench" / "workloads" / "service_worker.py"
PATIENCE_S = 300.0
FLOOR = Contender("floor (pyarrow copy)", "plain", "copy")
HUDI15 = Contender("Hudi 0.15.0", "0.15.0", "hudi")
OURS = (PLAIN, OURS35, OURS4)
RETAINED = 5
"""Commits that a clean retains."""
MB = 1 << 20

Start = Callable[[Path], AbstractContextManager[Path]]


@dataclass(frozen=True)
class Work:
    """One service of one table."""

    name: str
    table: Path
    request: Mapping[str, object]
    came_out: Callable[[Path], object]
    start: Start = copied
    small: Path | None = None
    """A small table for the same service, to be awake."""

    def asked(self, c: Contender, path: Path) -> dict[str, object]:
        """What a process is asked."""
        return {**self.request, "by": c.how, "path": str(path)}


@dataclass
class Result:
    """The samples of one service by contender, and who gave up why."""

    samples: dict[str, list[Sample]] = field(default_factory=dict)
    gave_up: dict[str, str] = field(default_factory=dict)
    cold: dict[str, float] = field(default_factory=dict)
    """Wall seconds where Spark had to start Python workers first."""

    def medians(self, what: str = "wall_s") -> dict[str, float]:
        """By contender."""
        return {name: median(ss, what) for name, ss in self.samples.items()}


def compete(contenders: Sequence[Contender], work: Work, repeat: int) -> Result:
    """Let everybody work once to warm up, compare what came out, then measure in turns.

    Spark ends Python workers that were idle for a minute, which others need for their turns: so
    everybody does something small just before what is measured.
    """
    result = Result()
    with warm(tuple(contenders), PROGRAM) as homes:
        for number in range(repeat + 1):
            wanted: object = None
            for c in contenders:
                if work.small is not None and number:
                    with work.start(work.small) as path:
                        _asked(homes[c.home], work, c, path, result)
                with work.start(work.table) as path:
                    sample = _asked(homes[c.home], work, c, path, result)
                    if sample is None or c is FLOOR:
                        made = None
                    else:
                        made = work.came_out(path) if number in (0, repeat) else None
                if made is not None:
                    wanted = made if wanted is None else wanted
                    if made != wanted:
                        raise SystemExit(f"{work.name}: {c.name} made another table: {made}")
                if sample is not None and number:
                    result.samples.setdefault(c.name, []).append(sample)
        for c in contenders if work.small is not None else ():
            if c.how == "spark":
                with work.start(work.table) as path:
                    sample = _asked(homes[c.home], work, c, path, result)
                result.cold |= {c.name: sample.wall_s} if sample is not None else {}
    for name, ss in result.samples.items():
        walls = [round(s.wall_s, 2) for s in ss]
        print(f"  {work.name}: {name} {median(ss):.2f} s of {walls}", flush=True)
    return result


def _asked(
    process: WarmProcess, work: Work, c: Contender, path: Path, result: Result
) -> Sample | None:
    if c.name in result.gave_up:
        return None
    try:
        return process.ask(work.asked(c, path), seconds=PATIENCE_S)
    except (GoneError, RefusedError) as error:
        if c.how != "hudi":
            raise SystemExit(f"{work.name}: {c.name}: {error}") from error
        result.gave_up[c.name] = str(error).splitlines()[0][:200]
        print(f"  {work.name}: {c.name} gave up: {result.gave_up[c.name]}", flush=True)
        return None


HEAD = ("contender", "wall s", "CPU s", "RSS MB", "of it Python", "against")


def rows(result: Result, against: Callable[[str], Sequence[str]]) -> list[str]:
    """Report rows of one service."""
    lines = [table_row(*HEAD), table_row(*["---"] * len(HEAD))]
    for name, ss in result.samples.items():
        cells = (
            f"{median(ss):.2f}",
            f"{median(ss, 'cpu_s'):.2f}",
            f"{max(s.rss_mb for s in ss):.0f}",
            f"{max(s.python_mb for s in ss):.0f}",
        )
        lines.append(table_row(name, *cells, ", ".join(against(name))))
    lines += (table_row(name, why, *[""] * 4) for name, why in result.gave_up.items())
    return [*lines, ""]


def _faster(result: Result, name: str, rivals: Sequence[Contender]) -> list[str]:
    walls = result.medians()
    if not name.startswith("ours"):
        return []
    known = [r.name for r in rivals if r.name in walls]
    return [f"{walls[r] / walls[name]:.1f}× faster than {r}" for r in known]


# ---- compaction --------------------------------------------------------------------------------


def compaction(sizes: Sizes, repeat: int) -> list[str]:
    """Ours beside real Hudi and the floor, and where the time of ours goes."""
    spec = Merging(sizes.rows, sizes.updates)
    work = Work(
        "compaction",
        spec.table(),
        {"do": "compact", "codec": CODEC, "version": 8, "dictionary": "same"},
        _compacted,
        small=Merging(SMALL.rows, SMALL.updates).table(),
    )
    rivals = (HUDI10, HUDI12)
    result = compete((FLOOR, *OURS, *rivals), work, repeat)
    cpu = result.medians("cpu_s")

    def against(name: str) -> list[str]:
        told = _faster(result, name, rivals)
        return [*told, f"{cpu[name] / cpu[FLOOR.name]:.2f}× floor CPU"] if told else told

    lines = [
        "## Compaction",
        "",
        f"{spec.groups} slices: {spec.rows:,} rows × 20 columns, and {spec.updates:,} updates in "
        f"Avro logs, one in ten of them older than what is stored; version 8, event time, {CODEC}, "
        "no metadata table. A run plans, schedules, executes and commits. Floor: pyarrow reads the "
        "base files and writes them with the same codec and dictionaries, one file per core: no "
        "logs, no merging, no fsync.",
        "",
        *rows(result, against),
        "Spark ends Python workers that were idle for a minute. A compaction that has to start "
        "them again takes "
        + ", ".join(f"{wall:.2f} s ({name})" for name, wall in result.cold.items())
        + ".",
        "",
        "![compaction](services.svg)",
        "",
        *_profile(spec, cpu[FLOOR.name]),
    ]
    if repeat > 1:
        record("service_compaction", asdict(spec), result.samples)
        plot_bars(
            {"compaction": result.medians()},
            RESULTS / "services.svg",
            f"Compaction, {spec.rows / 1e6:g} M + {spec.updates / 1e3:g} k rows",
        )
    return lines


def _compacted(path: Path) -> dict[str, int]:
    tasks = Table.open(path).scan().plan().tasks
    assert not any(task.slice_.logs for task in tasks), "logs are left"
    return came_out(path)


def _profile(spec: Merging, floor_s: float) -> list[str]:
    """CPU seconds of one core by what they are spent on."""
    with copied(spec.table()) as path:
        params = {"path": str(path), "codec": CODEC}
        sample = contest("service_alone", ["profile"], params, repeat=1, cores=1)["profile"][0]
    stages: dict[str, float] = json.loads(sample.check)
    total = sum(stages.values())
    lines = [
        "### Where the CPU time goes",
        "",
        "The same compaction in one thread on one core, in a process of its own; every moment "
        "counts for the innermost step.",
        "",
        table_row("step", "CPU s", "share", "of the floor"),
        table_row(*["---"] * 4),
    ]
    for stage, seconds in sorted(stages.items(), key=lambda item: -item[1]):
        share, ratio = f"{seconds / total:.0%}", f"{seconds / floor_s:.2f}"
        lines.append(table_row(stage, f"{seconds:.2f}", share, ratio))
    return [*lines, table_row("all", f"{total:.2f}", "", f"{total / floor_s:.2f}"), ""]


# ---- memory of a task --------------------------------------------------------------------------


def memory(sizes: Sizes, repeat: int) -> list[str]:
    """Peak memory of one task over sizes of logs and of `merge_memory`."""
    lines = [
        "## Memory of a compaction task",
        "",
        f"One slice of {sizes.slice_rows:,} rows × 20 columns in a process of its own. The peak is "
        "that of resident anonymous memory above what the process had before, of as many runs as "
        "there were the median and the highest: allocators keep more or less. Bound: the decoded "
        "logs, but not more than `merge_memory` of them, and three decoded row groups.",
        "",
        table_row(
            "updates",
            "decoded log MB",
            "merge_memory MB",
            "row group MB",
            "peak MB",
            "highest MB",
            "of it Arrow MB",
            "bound MB",
        ),
        table_row(*["---"] * 8),
    ]
    for updates in sizes.slice_updates:
        spec = Merging(sizes.slice_rows, updates, 1)
        for limit in sizes.merge_memory:
            runs: list[dict[str, float]] = []
            for _ in range(repeat):
                with copied(spec.table()) as path:
                    params = {"path": str(path), "codec": CODEC, "merge_memory": limit}
                    found = contest("service_alone", ["task"], params, repeat=1)["task"][0]
                runs.append(json.loads(found.check))
            said = runs[0]
            bound = min(said["log"], limit) + 3 * said["row_group"]
            peaks = sorted(run["peak"] for run in runs)
            peak = statistics.median(peaks)
            log, group = said["log"], said["row_group"]
            cells = (log, limit, group, peak, peaks[-1], said["arrow"], bound)
            lines.append(table_row(f"{updates:,}", *(f"{c / MB:.0f}" for c in cells)))
    return [*lines, ""]


# ---- clean and archive -------------------------------------------------------------------------


def clean(sizes: Sizes, repeat: int) -> list[str]:
    """Planning and deleting on many files, beside Hudi."""
    lines = [
        "## Clean",
        "",
        f"A copy-on-write table of {sizes.files:,} files in 200 partitions, of which 10 commits "
        f"each rewrote all file groups; {RETAINED} commits are retained. *Planned* is when the "
        "plan was on the timeline; the wall time has the deleting and the completion too.",
        "",
    ]
    for version, rivals in RIVALS.items():
        spec = ManyFiles(version, sizes.files)
        work = Work(
            f"clean of version {version}",
            spec.table(),
            {"do": "clean", "version": version, "retained": str(RETAINED)},
            lambda path: sorted(f.relative_to(path) for f in path.glob("p*/*.parquet")),
            linked,
        )
        result = compete((PLAIN, *rivals), work, min(repeat, 2))

        def against(
            name: str, result: Result = result, rivals: Sequence[Contender] = rivals
        ) -> list[str]:
            planned = min(float(s.check) for s in result.samples[name])
            return [f"planned after {planned:.2f} s", *_faster(result, name, rivals)]

        lines += [f"### Version {version}", "", *rows(result, against)]
        lines += _alone("clean_plan", spec.table(), copy=False)
        if repeat > 1:
            record(f"service_clean_{version}", asdict(spec), result.samples)
    return lines


def archive(sizes: Sizes, repeat: int) -> list[str]:
    """A long timeline, beside Hudi."""
    lines = [
        "## Archiving",
        "",
        f"A timeline of {sizes.instants:,} completed commits of which 20 stay.",
        "",
    ]
    for version, rivals in RIVALS.items():
        spec = LongTimeline(version, sizes.instants)
        request = {"do": "archive", "version": version}
        name = f"archiving of version {version}"
        work = Work(name, spec.table(), request, _archived)
        result = compete((PLAIN, *rivals), work, min(repeat, 2))

        def against(
            name: str, result: Result = result, rivals: Sequence[Contender] = rivals
        ) -> list[str]:
            return _faster(result, name, rivals)

        lines += [f"### Version {version}", "", *rows(result, against)]
        lines += _alone("archive", spec.table(), copy=True)
        if repeat > 1:
            record(f"service_archive_{version}", asdict(spec), result.samples)
    return lines


RIVALS: Mapping[int, tuple[Contender, ...]] = {6: (HUDI15,), 8: (HUDI10, HUDI12)}
"""Whom tables of each version are serviced by."""


def _archived(path: Path) -> tuple[list[str], int]:
    storage = open_storage(path)
    properties = load_properties(storage, clock=SystemClock())
    timeline = load_timeline(storage, properties)
    active = [i.requested_time for i in timeline.commits().completed()]
    times = archived_times(storage, properties)
    return active, len(set(times["requested_time"].to_pylist()))


def _alone(what: str, table: Path, *, copy: bool) -> list[str]:
    """Memory of ours in a process of its own."""
    with copied(table) if copy else nullcontext(table) as path:
        sample = contest("service_alone", [what], {"path": str(path)}, repeat=1)[what][0]
    said: dict[str, Any] = json.loads(sample.check)
    return [
        f"Ours alone in a new process: {sample.wall_s:.2f} s; resident memory "
        f"{said['before'] / MB:.0f} MB before, {said['peak'] / MB:.0f} MB at its peak.",
        "",
    ]


@dataclass(frozen=True)
class Sizes:
    """How large tables are."""

    rows: int = 2_000_000
    updates: int = 400_000
    slice_rows: int = 500_000
    slice_updates: tuple[int, ...] = (10_000, 100_000, 400_000)
    merge_memory: tuple[int, ...] = (1 << 30, 64 << 20, 16 << 20)
    files: int = 100_000
    instants: int = 10_000


SMALL = Sizes(20_000, 4_000, 20_000, (4_000,), (1 << 30, 1 << 20), 4_000, 200)
PARTS = {"compaction": compaction, "memory": memory, "clean": clean, "archive": archive}
DOCUMENT = [
    "# Benchmarks: table services",
    "",
    "Medians of one interleaved run, warm processes on 2 cores (`local[2]` and equal heaps on "
    "Spark); made by `make bench-services`. What came out was compared before anything was "
    "timed. CPU and RSS (peak) are those of the process tree: the JVM, the driver and the "
    "Python workers.",
    "",
]


if __name__ == "__main__":
    measure_parts("services", DOCUMENT, PARTS, Sizes(), SMALL, about=__doc__)
