"""Benchmarks of keyed writes: warm processes, interleaved, equal tables before times.

    python -m bench.keyed [changes profile large curves] [--repeat 3] [--small] [--only mor_200 ...]

Every contender changes a copy of the same table, which lakewright made (version 8, four file
groups, no metadata table): neither the copying nor the check of what came out is in the time.
Contenders on Spark have `local[2]` and the same heap; their sessions are warm. deltalake merges the
same rows into a Delta table of the same rows.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.contest import RESULTS, Sample, median, record
from bench.data import CACHE, cached
from bench.plots import plot_bars, plot_curves
from bench.processes import NEWEST, ROOT, Contender, GoneError, RefusedError, WarmProcess, warm
from bench.report import Report
from bench.run import table_row
from bench.sampling import sampled
from bench.write_data import Events, contents
from lakewright import Table

PROGRAM = ROOT / "bench" / "workloads" / "keyed_writer.py"
GROUPS = 4
MEGA = 1_000_000
CODEC = "snappy"
UPDATED = 0.8
"""Share of the rows of an upsert that are in the table; the others are new."""
PATIENCE_S = 240.0
MEASURED = 100_000
"""Tables of fewer rows are trials, of which nothing is kept."""
SEED = 6

PLAIN = Contender("ours without Spark", "plain", "arrow")
OURS35 = Contender("ours, Spark 3.5", "spark35", "spark")
OURS4 = Contender("ours, Spark 4", NEWEST, "spark")
HUDI10 = Contender("Hudi 1.0.2", "1.0.2", "hudi")
HUDI12 = Contender("Hudi 1.2.0", "1.2.0", "hudi")
DELTA = Contender("deltalake", "plain", "deltalake")
EVERY = (PLAIN, OURS35, OURS4, HUDI10, HUDI12, DELTA)


@dataclass(frozen=True)
class Base:
    """A table that is changed."""

    type: str
    rows: int = 2 * MEGA
    groups: int = GROUPS
    columns: int = 20
    indexes: bool = False
    """With a metadata table: statistics of columns and a record index."""

    def schema(self) -> pa.Schema:
        """The first columns of the input."""
        whole = pq.read_schema(Events(self.rows).files()[0])
        return pa.schema([whole.field(i) for i in range(self.columns)])

    def table(self) -> Path:
        """Where it is, made if it is not there."""
        indexed = "-indexed" if self.indexes else ""
        name = f"keyed-{self.type}-{self.rows}-{self.groups}-{self.columns}{indexed}"
        return cached(name, self._fill_delta if self.type == "delta" else self._fill)

    def _parts(self) -> Iterator[pa.Table]:
        """The rows of each file group."""
        each = self.rows // self.groups
        files = Events(self.rows).files()
        names = self.schema().names
        left: pa.Table | None = None
        for file in files:
            for batch in pq.ParquetFile(file).iter_batches(250_000, columns=names):
                part = pa.Table.from_batches([batch])
                left = part if left is None else pa.concat_tables([left, part])
                while left.num_rows >= each:
                    yield left.slice(0, each)
                    left = left.slice(each)

    def _fill(self, path: Path) -> None:
        table = Table.create(
            path,
            name="events",
            schema=self.schema(),
            type=self.type,
            version=8,
            key=["id"],
            ordering=["ts"],
        )
        options = {
            "hoodie.parquet.compression.codec": CODEC,
            "hoodie.parquet.max.file.size": str(1 << 40),
        }
        for part in self._parts():
            stream = pa.RecordBatchReader.from_batches(part.schema, part.to_batches())
            table.append(stream, options={**options, "hoodie.parquet.small.file.limit": "0"})
        if self.indexes:
            table.metadata.build("column_stats", "record_index")

    def _fill_delta(self, path: Path) -> None:
        from deltalake import write_deltalake

        for part in self._parts():
            write_deltalake(str(path), part, mode="append")


@dataclass(frozen=True)
class Work:
    """One change of a table."""

    name: str
    base: Base
    share: float
    """Of the table's rows; from 1 on a number of rows."""
    verb: str = "upsert"
    index: str = "SIMPLE"

    @property
    def rows(self) -> int:
        """Rows of the change."""
        return int(self.share if self.share >= 1 else self.base.rows * self.share)

    def source(self) -> Path:
        """The rows, made if they are not there."""
        base = self.base
        name = f"changes-{self.verb}-{base.rows}-{base.columns}-{self.rows}.parquet"
        path = (CACHE / name).resolve()
        if not path.exists():
            pq.write_table(self._made(), path, compression=CODEC)
        return path

    def _made(self) -> pa.Table:
        rng = np.random.default_rng([SEED, self.rows])
        known = self.rows if self.verb == "delete" else int(self.rows * UPDATED)
        chosen = self._chosen(rng, known)
        if self.verb == "delete":
            return chosen.select(["id", "ts"])
        # An update brings other values for every column but the key.
        changed = chosen.take(pa.array(rng.permutation(known)))
        for name in ("id", "ts"):
            changed = changed.set_column(chosen.schema.get_field_index(name), name, chosen[name])
        new = chosen.slice(0, self.rows - known)
        keys = pc.binary_join_element_wise(new["id"], "-new", "")
        new = new.set_column(0, "id", keys)
        both = pa.concat_tables([changed, new])
        at = both.schema.get_field_index("ts")
        # One in ten is older than what is stored, and loses.
        step = np.where(rng.random(both.num_rows) < 0.1, -1, 1) * 10**9
        later = pc.add(both["ts"], pa.array(step))
        return both.set_column(at, both.schema.field(at), later).combine_chunks()

    def _chosen(self, rng: np.random.Generator, count: int) -> pa.Table:
        """Rows from all over the table."""
        files = Events(self.base.rows).files()
        shares = np.diff(np.linspace(0, count, len(files) + 1).astype(np.int64))
        parts = []
        for file, share in zip(files, shares, strict=True):
            rows = pq.read_table(file, columns=self.base.schema().names)
            parts.append(rows.take(pa.array(rng.choice(rows.num_rows, share, replace=False))))
        return pa.concat_tables(parts)

    def request(self, c: Contender, path: Path) -> dict[str, object]:
        """What a process is asked."""
        return {
            "write": c.how,
            "verb": self.verb,
            "source": str(self.source()),
            "path": str(path),
            "type": self.base.type,
            "codec": CODEC,
            "index": self.index,
            "indexes": self.base.indexes,
        }

    def start(self, c: Contender) -> Path:
        """The table that a contender begins with."""
        base = self.base
        if c.how == "deltalake":
            return Base("delta", base.rows, base.groups, base.columns).table()
        return base.table()


@dataclass
class Result:
    """The samples of one change by contender, and who gave up why."""

    samples: dict[str, list[Sample]] = field(default_factory=dict)
    gave_up: dict[str, str] = field(default_factory=dict)


@contextmanager
def copied(table: Path) -> Iterator[Path]:
    """A copy of a table, removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="out-", dir=CACHE)).resolve()
    shutil.copytree(table, folder / "table")
    os.sync()  # nobody pays for what another one left to be written
    try:
        yield folder / "table"
    finally:
        shutil.rmtree(folder)


def came_out(path: Path) -> dict[str, int]:
    """What is in a changed table, without order."""
    if (path / ".hoodie").exists():
        scan = Table.open(path).scan(meta=False)
        return contents(scan.to_batches(), scan.schema)
    from deltalake import DeltaTable

    rows = DeltaTable(str(path)).to_pyarrow_table()
    return contents(rows.to_batches(), rows.schema)


def compete(
    contenders: Sequence[Contender], works: Sequence[Work], repeat: int, *, beside: int = 1
) -> dict[str, Result]:
    """Results by change; one write each to warm up, of which the tables are compared.

    So many changes that follow one another are measured `beside` each other, in turns, as those
    must be that are compared with each other.

    Hudi takes half a minute and more for most: its first change warms it up, of all others the one
    that is compared is also the one that counts. So it is for everybody if nothing is repeated.
    """
    found: dict[str, Result] = {}
    warmed: set[str] = set()
    hudi = {c.name for c in contenders if c.how == "hudi"}
    with warm(tuple(contenders), PROGRAM) as homes:
        for some in (works[first : first + beside] for first in range(0, len(works), beside)):
            results = {work: found.setdefault(work.name, Result()) for work in some}
            for work, result in results.items():
                compared = _check(contenders, work, homes, result)
                counts = hudi & warmed if repeat else {c.name for c in contenders}
                for name in counts & compared.keys():
                    result.samples[name] = [compared[name]]
            for number in range(repeat):
                rivals = [c for c in contenders if c.name not in (warmed if not number else hudi)]
                for c, (work, result) in product(rivals, results.items()):
                    with copied(work.start(c)) as path:
                        sample = _asked(homes[c.home], work, c, path, result)
                    if sample is not None:
                        result.samples.setdefault(c.name, []).append(sample)
            warmed |= hudi
            for work, result in results.items():
                _keep(work, contenders, result)
    return found


def _keep(work: Work, contenders: Sequence[Contender], result: Result) -> None:
    for c in contenders:
        if ss := result.samples.get(c.name):
            walls = [round(s.wall_s, 2) for s in ss]
            print(f"  {work.name}: {c.name} {median(ss):.2f} s of {walls}", flush=True)
    if work.base.rows >= MEASURED:
        record(f"keyed_{work.name}", {"work": str(work)}, result.samples)


def _check(
    contenders: Sequence[Contender],
    work: Work,
    homes: Mapping[str, WarmProcess],
    result: Result,
) -> dict[str, Sample]:
    """Let everybody write once, and stop where a table is not right; what it took."""
    wanted: dict[str, int] | None = None
    took: dict[str, Sample] = {}
    for c in contenders:
        with copied(work.start(c)) as path:
            sample = _asked(homes[c.home], work, c, path, result)
            if sample is None:
                continue
            made = came_out(path)
        took[c.name] = sample
        made = {name: made[name] for name in ("rows", *work.base.schema().names)}
        if wanted is None:
            wanted = made
        elif made != wanted:
            wrong = [name for name in wanted if made[name] != wanted[name]]
            raise SystemExit(f"{work.name}: {c.name} made another table, see {wrong}")
    return took


def _asked(
    process: WarmProcess, work: Work, c: Contender, path: Path, result: Result
) -> Sample | None:
    if c.name in result.gave_up:
        return None
    try:
        return process.ask(work.request(c, path), seconds=PATIENCE_S)
    except (GoneError, RefusedError) as error:
        if c.how in ("spark", "arrow"):
            raise SystemExit(f"{work.name}: {c.name}: {error}") from error
        result.gave_up[c.name] = " ".join(str(error).splitlines()[:2])[:200]
        print(f"  {work.name}: {c.name} gave up: {result.gave_up[c.name]}", flush=True)
        return None


HEAD = ("contender", "wall s", "CPU s", "RSS MB", "of it Python", "against")


def rows(result: Result) -> Iterator[str]:
    """Report rows of one change."""
    medians = {name: median(ss) for name, ss in result.samples.items()}
    for name, ss in result.samples.items():
        told = []
        if name.startswith("ours"):
            rivals = [c.name for c in (HUDI10, HUDI12) if c.name in medians]
            told = [f"{medians[r] / medians[name]:.1f}× faster than {r}" for r in rivals]
            if DELTA.name in medians:
                told.append(f"{medians[name] / medians[DELTA.name]:.2f}× deltalake")
        yield table_row(
            name,
            f"{medians[name]:.2f}",
            f"{median(ss, 'cpu_s'):.2f}",
            f"{max(s.rss_mb for s in ss):.0f}",
            f"{max(s.python_mb for s in ss):.0f}",
            ", ".join(told),
        )
    for name, why in result.gave_up.items():
        yield table_row(name, why, *[""] * 4)


CHANGES = {
    "MERGE_ON_READ, upsert of 200 rows": ("mor_200", "mor", 200, "upsert"),
    "MERGE_ON_READ, upsert of 1 %": ("mor_1", "mor", 0.01, "upsert"),
    "MERGE_ON_READ, upsert of 20 %": ("mor_20", "mor", 0.2, "upsert"),
    "COPY_ON_WRITE, upsert of 1 %": ("cow_1", "cow", 0.01, "upsert"),
    "COPY_ON_WRITE, upsert of 20 %": ("cow_20", "cow", 0.2, "upsert"),
    "COPY_ON_WRITE, delete of 5 %": ("cow_delete_5", "cow", 0.05, "delete"),
}


def changes(sizes: Sizes, repeat: int, only: Sequence[str]) -> list[str]:
    """Ours beside real Hudi and deltalake; with `only` the others stay as they were measured."""
    works = {
        title: Work(name, Base(kind, sizes.rows), share, verb)
        for title, (name, kind, share, verb) in CHANGES.items()
        if not only or name in only
    }
    found = compete(EVERY, [*works.values()], repeat)
    store = RESULTS / "keyed_changes.json"
    known: dict[str, dict[str, object]] = json.loads(store.read_text()) if store.exists() else {}
    for work in works.values():
        result = found[work.name]
        medians = {n: median(ss) for n, ss in result.samples.items()}
        known[work.name] = {"rows": [*rows(result)], "medians": medians}
    if repeat > 1:
        store.write_text(json.dumps(known, indent=1) + "\n")
    lines = [
        "## Changes",
        "",
        f"A table of {sizes.rows:,} rows × 20 columns in {GROUPS} file groups, version 8, event "
        f"time, index SIMPLE, {CODEC}, no metadata table. Of an upsert {UPDATED:.0%} of the rows "
        "are in the table, with other values in every column but the key, one in ten of them older "
        "than what is stored; the others are new.",
        "",
    ]
    for title, (name, *_) in CHANGES.items():
        if name in known:
            told: list[str] = known[name]["rows"]  # type: ignore[assignment]
            lines += [f"### {title}", "", table_row(*HEAD), table_row(*["---"] * len(HEAD))]
            lines += [*told, ""]
    bars = {name: known[name]["medians"] for name, *_ in CHANGES.values() if name in known}
    title = "Keyed writes, seconds"
    if repeat > 1:
        plot_bars(bars, RESULTS / "keyed.svg", title)  # type: ignore[arg-type]
    return [*lines, f"![{title}](keyed.svg)", ""]


def profile(sizes: Sizes, _: int, only: Sequence[str]) -> list[str]:
    """Where the time of each change goes, without Spark."""
    lines = [
        "## Where the time goes",
        "",
        "The same changes without Spark, sampled every two milliseconds: seconds of all threads "
        "by the module they are in, as parts of the wall time (two busy threads make 2.0).",
        "",
    ]
    for title, (name, kind, share, verb) in CHANGES.items():
        if only and name not in only:
            continue
        work = Work(name, Base(kind, sizes.rows), share, verb)
        for _round in range(2):  # the first one warms up
            with copied(work.start(PLAIN)) as path:
                samples = sampled(partial(_change, work, path))
        lines += [f"### {title}", "", table_row("module", "share"), table_row("---", "---")]
        lines += [table_row(place, f"{part:.2f}") for place, part in samples.shares().items()]
        lines.append("")
    return lines


def _change(work: Work, path: Path) -> None:
    table = Table.open(path)
    change = table.delete if work.verb == "delete" else table.upsert
    options = {"hoodie.index.type": work.index, "hoodie.parquet.compression.codec": CODEC}
    change(pq.read_table(work.source()), options=options)


def large(sizes: Sizes, repeat: int, only: Sequence[str]) -> list[str]:
    """A table ten times as large, for memory."""
    works = [
        Work(f"large_{kind}", Base(kind, sizes.large, 10 * GROUPS), sizes.large_change)
        for kind in ("mor", "cow")
    ]
    works = [work for work in works if not only or work.name in only]
    found = compete((PLAIN, OURS35), works, 0 if repeat > 1 else repeat)
    lines = [
        "## A large table",
        "",
        f"Upsert of {works[0].rows if works else 0:,} rows into {sizes.large:,} rows × 20 columns; "
        "RSS is the peak of the whole process tree, the JVM with a heap of 3 GB included.",
        "",
    ]
    for work in works:
        lines += [f"### {work.name}", "", table_row(*HEAD), table_row(*["---"] * len(HEAD))]
        lines += [*rows(found[work.name]), ""]
    return lines


def curves(sizes: Sizes, repeat: int, only: Sequence[str]) -> list[str]:
    """Over rows, columns, file groups and the share that changes; without Spark."""
    lines: list[str] = []
    for kind in ("mor", "cow"):
        axes = {
            "rows": {n: Work(f"{kind}_rows_{n}", Base(kind, n), 0.1) for n in sizes.curve_rows},
            "columns": {
                n: Work(f"{kind}_columns_{n}", Base(kind, sizes.curve, columns=n), 0.1)
                for n in (5, 10, 20)
            },
            "file groups": {
                n: Work(f"{kind}_groups_{n}", Base(kind, sizes.curve, groups=n), 0.1)
                for n in sizes.curve_groups
            },
            "share": {
                s: Work(f"{kind}_share_{s:g}", Base(kind, sizes.curve), s)
                for s in (0.001, 0.01, 0.05, 0.2, 0.5, 0.99)
            },
        }
        for axis, works in axes.items():
            if only and axis not in only:
                continue
            lines += _curve(kind, axis, works, min(repeat, 2))
    return lines


def _curve(kind: str, axis: str, works: Mapping[float, Work], repeat: int) -> list[str]:
    found = compete((PLAIN,), [*works.values()], repeat)
    name = f"keyed_{kind}_{axis.replace(' ', '_')}.svg"
    lines = [
        f"## {kind.upper()}, over {axis}",
        "",
        table_row(axis, "wall s", "CPU s", "RSS MB"),
        table_row(*["---"] * 4),
    ]
    points: tuple[list[float], list[float]] = ([], [])
    for at, work in works.items():
        ss = found[work.name].samples[PLAIN.name]
        points[0].append(at)
        points[1].append(median(ss))
        lines.append(
            table_row(
                f"{at:,}",
                f"{median(ss):.2f}",
                f"{median(ss, 'cpu_s'):.2f}",
                f"{max(s.rss_mb for s in ss):.0f}",
            )
        )
    if repeat > 1:
        plot_curves({PLAIN.name: points}, RESULTS / name, f"{kind} upsert over {axis}", log_y=True)
    return [*lines, "", f"![{axis}]({name})", ""]


@dataclass(frozen=True)
class Sizes:
    """How large tables are."""

    rows: int = 2 * MEGA
    large: int = 20 * MEGA
    large_change: float = 0.05
    curve: int = MEGA
    curve_rows: tuple[int, ...] = (100_000, MEGA, 2 * MEGA)
    curve_groups: tuple[int, ...] = (1, 4, 20, 100)


SMALL = Sizes(20_000, 100_000, 0.2, 20_000, (20_000, 100_000), (1, 4))
PARTS = {"changes": changes, "profile": profile, "large": large, "curves": curves}


def main() -> None:
    """Run the asked parts and write the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=list(PARTS))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--small", action="store_true", help="a trial with few rows")
    parser.add_argument("--only", nargs="*", default=[], help="names of changes, or axes of curves")
    args = parser.parse_args()
    repeat = 1 if args.small else args.repeat
    report = Report("keyed")
    for part in args.parts or PARTS:
        print(f"… {part}", flush=True)
        lines = PARTS[part](SMALL if args.small else Sizes(), repeat, args.only)
        print("\n".join(lines), flush=True)
        if repeat > 1 and (part == "changes" or not args.only):
            report.keep(part, lines)
    head = [
        "# Benchmarks: keyed writes",
        "",
        "Medians of one interleaved run, warm processes on 2 cores (`local[2]` and equal heaps on "
        "Spark); made by `make bench-keyed`. A write is the whole of it: opening the table, "
        "reading the rows, looking keys up, writing, committing. CPU and RSS (peak) are those of "
        "the process tree: the JVM, the driver and the Python workers.",
        "",
    ]
    if repeat > 1:
        report.write(head, PARTS)


if __name__ == "__main__":
    main()
