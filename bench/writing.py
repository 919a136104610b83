"""Benchmarks of writing: warm processes, interleaved, equal tables before times.

    python -m bench.writing [bulk_insert load rows partitions] [--repeat 5] [--small] [--only ...]

Every contender makes a table from the same plain Parquet files: it creates it and bulk-inserts all
rows. Each write goes to a folder of its own, which is removed afterwards; neither that nor the
check of what was written is in the time. Contenders on Spark have `local[2]` and the same heap.
Needs `.venv-spark35` beside `.venv` (which has the newest Spark) and the environment of real Hudi.
Reports and plots go to bench/results.
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
from pathlib import Path

from bench.contest import RESULTS, Sample, median, record
from bench.data import CACHE
from bench.plots import plot_bars, plot_curves
from bench.processes import NEWEST, ROOT, Contender, GoneError, RefusedError, WarmProcess, warm
from bench.report import Report
from bench.run import table_row
from bench.write_data import Events, Written, source_contents, written

PROGRAM = ROOT / "bench" / "workloads" / "table_writer.py"
WARM_UP = 2
LARGE_ROUNDS = 2
"""Rounds of writes that take long."""
MEASURED = 100_000
"""Writes of fewer rows are trials, of which nothing is kept."""
PATIENCE_S = 120.0
"""A writer of the curves that takes longer is left out."""
NONE, GLOBAL = "NONE", "GLOBAL_SORT"
MEGA = 1_000_000

FLOOR = Contender("floor (pyarrow copy)", "plain", "copy")
PLAIN = Contender("ours without Spark", "plain", "arrow")
OURS35 = Contender("ours, Spark 3.5", "spark35", "spark")
OURS4 = Contender("ours, Spark 4", NEWEST, "spark")
HUDI10 = Contender("Hudi 1.0.2", "1.0.2", "hudi")
HUDI12 = Contender("Hudi 1.2.0", "1.2.0", "hudi")
OURS = (PLAIN, OURS35, OURS4)


@dataclass(frozen=True)
class Work:
    """What is written."""

    name: str
    events: Events
    sort: str = NONE
    codec: str | None = "snappy"
    computed: bool = False
    """Whether Spark has to look at every row, instead of handing on a scan of files."""

    def request(self, how: str, path: Path) -> dict[str, object]:
        """What a process is asked."""
        return {
            "write": how,
            "sources": [str(f.resolve()) for f in self.events.files()],
            "path": str(path),
            "partition": self.events.field,
            "sort": self.sort,
            "codec": self.codec,
            "computed": self.computed,
        }


@dataclass
class Result:
    """The samples of one piece of work by contender, what they wrote, and who gave up why."""

    samples: dict[str, list[Sample]] = field(default_factory=dict)
    made: dict[str, Written] = field(default_factory=dict)
    gave_up: dict[str, str] = field(default_factory=dict)


@contextmanager
def fresh_folder() -> Iterator[Path]:
    """The path of a table that is not there yet; what was written there is removed."""
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="out-", dir=CACHE)).resolve()
    os.sync()  # nobody pays for what another one left to be written
    try:
        yield folder / "table"
    finally:
        shutil.rmtree(folder)


def check(
    contenders: Sequence[Contender], work: Work, homes: Mapping[str, WarmProcess], result: Result
) -> dict[str, Sample]:
    """Let everybody write once and look at what it is; stops where a table is not right."""
    took: dict[str, Sample] = {}
    files = work.events.files()
    wanted = source_contents(files)
    for c in contenders:
        with fresh_folder() as path:
            sample = _asked(homes[c.home], work, c, path, result)
            if sample is None:
                continue
            made = written(path, files, partition=work.events.field, is_sorted=work.sort == GLOBAL)
        if made.contents != wanted:
            wrong = [name for name, sums in made.contents.items() if sums != wanted[name]]
            raise SystemExit(f"{work.name}: {c.name} wrote other rows, see {wrong}")
        if work.codec and made.codecs != {work.codec.upper()}:
            raise SystemExit(f"{work.name}: {c.name} wrote {set(made.codecs)}")
        result.made[c.name] = made
        took[c.name] = sample
    return took


def compete(
    contenders: Sequence[Contender],
    works: Sequence[Work],
    repeat: int,
    *,
    warm_up: int = WARM_UP,
    apart: bool = False,
) -> dict[str, Result]:
    """Results by piece of work. `apart`: one process after the other, new for each piece.

    Without a warm-up the write that is checked is the first that counts.
    """
    found: dict[str, Result] = {}
    groups = [(c,) for c in contenders] if apart else [tuple(contenders)]
    batches = [[work] for work in works] if apart else [works]
    for batch in batches:
        for group in groups:
            with warm(group, PROGRAM) as homes:
                for work in batch:
                    result = found.setdefault(work.name, Result())
                    took = check(group, work, homes, result)
                    rounds = repeat
                    if not warm_up:
                        rounds -= 1
                        result.samples |= {name: [sample] for name, sample in took.items()}
                    _rounds(group, work, homes, result, max(0, warm_up - 1), rounds)
    for work in works:
        result = found[work.name]
        params = {"work": str(work)}
        if work.events.rows >= MEASURED:
            record(f"write_{work.name}", params, result.samples)
    return found


def _rounds(
    group: Sequence[Contender],
    work: Work,
    homes: Mapping[str, WarmProcess],
    result: Result,
    warm_up: int,
    repeat: int,
) -> None:
    for number in range(warm_up + repeat):
        for c in group:
            with fresh_folder() as path:
                sample = _asked(homes[c.home], work, c, path, result)
            if sample is not None and number >= warm_up:
                result.samples.setdefault(c.name, []).append(sample)
    for c in group:
        if ss := result.samples.get(c.name):
            shown = f"{median(ss):.2f} s of {[round(s.wall_s, 2) for s in ss]}"
            print(f"  {work.name}: {c.name} {shown}, {_rss(ss):.0f} MB", flush=True)


def _asked(
    process: WarmProcess, work: Work, c: Contender, path: Path, result: Result
) -> Sample | None:
    """One write; None if it, or an earlier one, came to nothing."""
    if c.name in result.gave_up:
        return None
    hudi = c.how == "hudi"
    try:
        request = work.request(c.how, path)
        return process.ask(request, **({"seconds": PATIENCE_S} if hudi else {}))
    except (GoneError, RefusedError) as error:
        if not hudi:
            raise SystemExit(f"{work.name}: {c.name}: {error}") from error
        result.gave_up[c.name] = str(error).splitlines()[0][:200]
        print(f"  {work.name}: {c.name} gave up: {result.gave_up[c.name]}", flush=True)
        return None


def _rss(ss: Sequence[Sample], what: str = "rss_mb") -> float:
    return max(float(getattr(s, what)) for s in ss)


HEAD = ("contender", "wall s", "CPU s", "RSS MB", "of it Python", "files", "MB written")


def rows(result: Result, ours: Sequence[Contender], rivals: Sequence[Contender]) -> Iterator[str]:
    """Report rows of a contest: ours are compared with the floor and with the rivals."""
    medians = {name: median(ss) for name, ss in result.samples.items()}
    for name, ss in result.samples.items():
        against = ""
        if name in [c.name for c in ours]:
            told = [
                f"{medians[r.name] / medians[name]:.1f}× faster than {r.name}"
                for r in rivals
                if r.name in medians
            ]
            if FLOOR.name in medians:
                told.append(f"{medians[name] / medians[FLOOR.name]:.1f}× floor")
            against = ", ".join(told)
        made = result.made[name]
        yield table_row(
            name,
            f"{medians[name]:.2f}",
            f"{median(ss, 'cpu_s'):.2f}",
            f"{_rss(ss):.0f}",
            f"{_rss(ss, 'python_mb'):.0f}",
            made.files,
            f"{made.size / 2**20:.0f}",
            against,
        )
    for name, why in result.gave_up.items():
        yield table_row(name, why, *[""] * 6)


def bulk_insert(sizes: Sizes, repeat: int, _: Sequence[str]) -> list[str]:
    """Ours beside real Hudi and the floor."""
    events = Events(sizes.rows)
    works = {
        "same codec (snappy), not sorted": Work("none", events),
        "the same, rows that Spark computes": Work("computed", events, computed=True),
        "same codec (snappy), sort mode GLOBAL_SORT": Work("global", events, GLOBAL),
    }
    rivals = (HUDI10, HUDI12)
    found = compete((FLOOR, *OURS, *rivals), [*works.values()], repeat)
    lines = [
        "## bulk_insert",
        "",
        f"{sizes.rows:,} rows × 20 columns from one Parquet file into a new copy-on-write table of "
        "version 8, no partitions, no metadata table, bloom filters in every file. Floor: pyarrow "
        "reads the file and writes two, one per core, without keys, filters or meta columns. On "
        "Spark the rows are `spark.read.parquet(file)`, which our workers read themselves where "
        "rows are not sorted; computed rows are a filter over it that keeps them all, so that they "
        "come through Spark (writers without Spark do nothing else there).",
        "",
    ]
    for title, work in works.items():
        lines += [f"### {title}", "", table_row(*HEAD, "against"), table_row(*["---"] * 8)]
        lines += [*rows(found[work.name], OURS, rivals), ""]
    bars = {
        work.name: {n: median(ss) for n, ss in found[work.name].samples.items()}
        for work in works.values()
    }
    title = f"bulk_insert of {sizes.rows / MEGA:g} M rows × 20 columns"
    if sizes.rows >= MEASURED:
        plot_bars(bars, RESULTS / "writing.svg", title)
    return [*lines, f"![{title}](writing.svg)", ""]


def load(sizes: Sizes, repeat: int, _: Sequence[str]) -> list[str]:
    """A large load in bounded memory, each writer in a new process."""
    works = [Work("load", Events(sizes.load))]
    found = compete((PLAIN, OURS35, HUDI12), works, min(repeat, 1), warm_up=0, apart=True)
    size = sum(f.stat().st_size for f in works[0].events.files()) / 2**20
    lines = [
        "## A large load",
        "",
        f"{sizes.load:,} rows × 20 columns ({size:,.0f} MB of Parquet), snappy, a new process for "
        "each row of the table; RSS is the peak of the whole process tree, the JVM with a heap of "
        "3 GB included.",
        "",
        table_row("sort mode", *HEAD),
        table_row(*["---"] * 8),
    ]
    for work in works:
        for line in rows(found[work.name], (), ()):
            cells = line.split(" | ")[:-1]
            lines.append(f"| {work.sort} {cells[0]} | " + " | ".join(cells[1:]) + " |")
    return [*lines, ""]


def over_rows(sizes: Sizes, repeat: int, _: Sequence[str]) -> list[str]:
    """The curve over rows."""
    works = {n: Work(f"rows_{n}", Events(n)) for n in sizes.curve_rows}
    contenders = (PLAIN, OURS35)
    rounds = min(repeat, LARGE_ROUNDS)
    found = compete(contenders, [*works.values()], rounds, warm_up=1, apart=True)
    lines = [
        "## Over rows",
        "",
        "As above (snappy, not sorted), each point in new processes.",
        "",
        table_row("contender", "rows", "wall s", "s per million", "RSS MB", "of it Python"),
        table_row(*["---"] * 6),
    ]
    walls: dict[str, tuple[list[int], list[float]]] = {}
    peaks: dict[str, tuple[list[int], list[float]]] = {}
    for c in contenders:
        for n, work in works.items():
            ss = found[work.name].samples.get(c.name)
            if not ss:
                why = found[work.name].gave_up.get(c.name, "")
                lines.append(table_row(c.name, f"{n:,}", why, "", "", ""))
                continue
            wall, peak, python = median(ss), _rss(ss), _rss(ss, "python_mb")
            cells = (f"{wall:.2f}", f"{wall * MEGA / n:.2f}", f"{peak:.0f}", f"{python:.0f}")
            lines.append(table_row(c.name, f"{n:,}", *cells))
            for series, value in ((walls, wall), (peaks, peak)):
                points = series.setdefault(c.name, ([], []))
                points[0].append(n)
                points[1].append(value)
    if sizes.rows >= MEASURED:
        title = "bulk_insert over rows"
        plot_curves(walls, RESULTS / "writing_rows.svg", title, log_y=True)
        plot_curves(peaks, RESULTS / "writing_rss.svg", f"{title}: peak memory", y="RSS MB")
    return [*lines, "", "![rows](writing_rows.svg)", "", "![memory](writing_rss.svg)", ""]


def over_partitions(sizes: Sizes, _: int, only: Sequence[str]) -> list[str]:
    """The curve over partitions; with `only` the other points stay as they were measured."""
    works = {
        (sort, n): Work(f"{sort.lower()}_over_{n}", Events(sizes.curve_events, n), sort)
        for n in sizes.curve_partitions
        for sort in (GLOBAL, NONE)  # the one that may take too long comes last
    }
    store = RESULTS / "writing_partitions.json"
    known: dict[str, dict[str, list[float | str]]] = {}
    if only:
        known = json.loads(store.read_text())
    start = Work("start", Events(sizes.curve_rows[0]))
    contenders = (PLAIN, OURS35, HUDI12)
    chosen = [work for work in works.values() if not only or work.name in only]
    found = compete(contenders, [start, *chosen], 1, warm_up=0)
    for work in chosen:
        result = found[work.name]
        measured = {name: [median(ss), _rss(ss)] for name, ss in result.samples.items()}
        known[work.name] = {**measured, **{name: [why] for name, why in result.gave_up.items()}}
    lines = [
        "## Over partitions",
        "",
        f"{sizes.curve_events:,} rows × 20 columns at random over the partitions, snappy; one "
        "write each.",
        "",
        table_row("sort mode", "contender", "partitions", "wall s", "RSS MB"),
        table_row(*["---"] * 5),
    ]
    walls: dict[str, tuple[list[int], list[float]]] = {}
    for (sort, n), work in sorted(works.items(), key=lambda item: (item[0][0] != NONE, item[0][1])):
        for name, told in known[work.name].items():
            if len(told) == 1:
                lines.append(table_row(sort, name, f"{n:,}", str(told[0]), ""))
                continue
            wall_s, peak = map(float, told)
            lines.append(table_row(sort, name, f"{n:,}", f"{wall_s:.2f}", f"{peak:.0f}"))
            points = walls.setdefault(f"{name}, {sort}", ([], []))
            points[0].append(n)
            points[1].append(wall_s)
    if sizes.rows >= MEASURED:
        store.write_text(json.dumps(known, indent=1) + "\n")
        title = "bulk_insert over partitions"
        plot_curves(walls, RESULTS / "writing_partitions.svg", title, log_y=True)
    return [*lines, "", "![partitions](writing_partitions.svg)", ""]


@dataclass(frozen=True)
class Sizes:
    """How much is written."""

    rows: int = 2 * MEGA
    load: int = 20 * MEGA
    curve_rows: tuple[int, ...] = (100_000, MEGA, 2 * MEGA, 10 * MEGA)
    curve_events: int = MEGA
    curve_partitions: tuple[int, ...] = (1, 100, 5_000)


SMALL = Sizes(20_000, 50_000, (5_000, 20_000), 10_000, (1, 50))
PARTS = {"bulk_insert": bulk_insert, "load": load, "rows": over_rows, "partitions": over_partitions}


def main() -> None:
    """Run the asked parts and write the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=list(PARTS))
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="a trial with few rows")
    parser.add_argument("--only", nargs="*", default=[], help="points of the curve over partitions")
    args = parser.parse_args()
    repeat = 1 if args.small else args.repeat
    report = Report("writing")
    for part in args.parts or PARTS:
        print(f"… {part}", flush=True)
        lines = PARTS[part](SMALL if args.small else Sizes(), repeat, args.only)
        print("\n".join(lines), flush=True)
        if not args.small:
            report.keep(part, lines)
    head = [
        "# Benchmarks: writing",
        "",
        "Medians of one interleaved run per table, warm processes on 2 cores (`local[2]` and equal "
        "heaps on Spark); made by `make bench-writing`. A write is the whole of it: reading the "
        "input, creating the table, writing, committing. CPU and RSS (peak) are those of the "
        "process tree: the JVM, the driver and the Python workers.",
        "",
    ]
    if not args.small:
        report.write(head, PARTS)


if __name__ == "__main__":
    main()
