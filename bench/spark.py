"""Benchmarks on Spark: warm processes of two cores each, interleaved, equal answers before times.

    python -m bench.spark [spark_cow spark_mor spark_plan] [--repeat 5] [--small]

Contenders of one Spark version share a process; real Hudi has one per release. Every process has
`local[2]` and the same heap, and is idle while another one is measured. A round asks every
contender once; the first rounds warm up and do not count. Needs `.venv-spark35` beside `.venv`
(which has the newest Spark) and the environment of real Hudi. Reports and plots go to
bench/results.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from bench.contest import RESULTS, Sample, median, record
from bench.data import MorTable, build
from bench.plots import plot_bars
from bench.run import table_row
from bench.spark_data import ManyFiles, build_cow, build_many

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "bench" / "workloads" / "spark_reader.py"
BUNDLE = "hudi-spark3.5-bundle_2.12-{}.jar"
WARM_UP = 3
TRIAL = 1
"""So many rounds are no measurement: nothing of them is kept."""
TICKS = os.sysconf("SC_CLK_TCK")
PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 2**20
NEWEST = "newest"
HOMES = {"spark35": ".venv-spark35", NEWEST: ".venv"}
"""The environment of each Spark version; every other home is a release of Hudi."""
SMALL = MorTable(rows=40_000, updates=6_800, inserts=1_200, groups=4)


@dataclass(frozen=True)
class Contender:
    """Who reads how."""

    name: str
    home: str
    """The process: an environment, or a release of Hudi."""
    how: str


PARQUET35 = Contender("parquet, Spark 3.5", "spark35", "parquet")
OURS35 = Contender("ours, Spark 3.5", "spark35", "ours")
PARQUET4 = Contender("parquet, Spark 4", NEWEST, "parquet")
OURS4 = Contender("ours, Spark 4", NEWEST, "ours")
SOURCE4 = Contender("ours as a format, Spark 4", NEWEST, "source")
HUDI10 = Contender("Hudi 1.0.2", "1.0.2", "hudi")
HUDI12 = Contender("Hudi 1.2.0", "1.2.0", "hudi")


class Reader:
    """One warm Spark process."""

    def __init__(self, home: str, work: Path) -> None:
        work.mkdir(parents=True)
        hudi = home not in HOMES
        python = ROOT / HOMES.get(home, ".venv-hudi") / "bin" / "python"
        jar = str(ROOT / ".cache" / "hudi-jars" / BUNDLE.format(home)) if hudi else "-"
        self.home, self._log = home, work / "log"
        self._process = subprocess.Popen(
            [str(python), str(PROGRAM), str(work), jar],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                "PYSPARK_PYTHON": str(python),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "TZ": "UTC",
            },
            start_new_session=True,
            cwd=work,
        )
        self.version = str(self._answer()["result"])

    def ask(self, how: str, path: Path, columns: Sequence[str] | None, do: str) -> Sample:
        """Let it do one thing."""
        asked = {"read": how, "path": str(path.resolve()), "columns": columns, "do": do}
        before = self._used()[0]
        stdin = cast("IO[bytes]", self._process.stdin)
        stdin.write(json.dumps(asked).encode() + b"\n")
        stdin.flush()
        answer = self._answer()
        after, rss = self._used()
        result = answer["result"]
        return Sample(answer["seconds"], after - before, rss, "" if result is None else str(result))

    def close(self) -> None:
        """End the process."""
        cast("IO[bytes]", self._process.stdin).close()
        self._process.wait()

    def _answer(self) -> dict[str, Any]:
        line = cast("IO[bytes]", self._process.stdout).readline()
        if not line:
            tail = self._log.read_text(errors="replace")[-4000:]
            raise SystemExit(f"{self.home} ended:\n{tail}")
        return dict(json.loads(line))

    def _used(self) -> tuple[float, float]:
        """CPU seconds and resident megabytes of the process with its JVM and workers."""
        cpu = rss = 0.0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has just ended
            if int(fields[3]) == self._process.pid:  # the session
                cpu += sum(map(int, fields[11:15])) / TICKS
                rss += int(fields[21]) * PAGE_MB
        return cpu, rss


@contextmanager
def readers(contenders: Sequence[Contender]) -> Iterator[dict[str, Reader]]:
    """The processes of some contenders."""
    folder = Path(tempfile.mkdtemp(prefix="lakewright-bench-"))
    made: dict[str, Reader] = {}
    try:
        for home in dict.fromkeys(c.home for c in contenders):
            made[home] = Reader(home, folder / home)
        yield made
    finally:
        for reader in made.values():
            reader.close()
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Workload:
    """What is read."""

    name: str
    path: Path
    columns: tuple[str, ...] | None
    do: str = "noop"


def compete(
    contenders: Sequence[Contender], workloads: Sequence[Workload], repeat: int
) -> dict[str, dict[str, list[Sample]]]:
    """Samples by workload and contender; refuses to time contenders that do not agree."""
    found: dict[str, dict[str, list[Sample]]] = {}
    with readers(contenders) as homes:
        for work in workloads:
            checks = {
                c.name: homes[c.home].ask(c.how, work.path, work.columns, "check").check
                for c in contenders
            }
            if len(set(checks.values())) > 1:
                raise SystemExit(f"{work.name}: contenders disagree: {checks}")
            samples: dict[str, list[Sample]] = {c.name: [] for c in contenders}
            for number in range(WARM_UP + repeat):
                for c in contenders:
                    sample = homes[c.home].ask(c.how, work.path, work.columns, work.do)
                    if number >= WARM_UP:
                        samples[c.name].append(sample)
            found[work.name] = samples
            params = {"path": work.path.name, "columns": work.columns, "do": work.do}
            if repeat > TRIAL:
                record(f"spark_{work.name}", params, samples)
            shown = {name: round(median(ss), 3) for name, ss in samples.items()}
            print(f"  {work.name}: {shown}", flush=True)
    return found


def rows(
    samples: dict[str, list[Sample]], ratios: dict[str, dict[str, str]], label: str
) -> Iterator[str]:
    """Report rows; `ratios` names, by contender, what it is compared with."""
    for name, ss in samples.items():
        compared = ", ".join(
            f"{text} {median(ss) / median(samples[other]):.2f}"
            if text == "×"
            else f"{median(samples[other]) / median(ss):.1f}× faster than {other}"
            for other, text in ratios.get(name, {}).items()
        )
        yield table_row(
            label,
            name,
            f"{median(ss):.2f}",
            f"{median(ss, 'cpu_s'):.2f}",
            f"{max(s.rss_mb for s in ss):.0f}",
            compared,
        )


HEAD = [
    table_row("columns", "contender", "wall s", "CPU s", "RSS MB", "against"),
    table_row(*["---"] * 6),
]


def spark_cow(spec: MorTable, repeat: int) -> list[str]:
    """COW through `SparkTable` against Spark's own Parquet reader on the same files."""
    path = build_cow(spec)
    contenders = (PARQUET35, OURS35, PARQUET4, OURS4, HUDI10, HUDI12)
    works = [Workload("cow_25", path, None), Workload("cow_2", path, ("id", "d1"))]
    found = compete(contenders, works, repeat)
    ratios = {OURS35.name: {PARQUET35.name: "×"}, OURS4.name: {PARQUET4.name: "×"}}
    lines = [
        "## Copy-on-write table, to a no-op sink",
        "",
        f"{spec.rows:,} rows × 20 columns (+ 5 meta) in {spec.groups} files, snappy. Parquet: "
        "`spark.read.parquet` of the same files.",
        "",
        *HEAD,
        *rows(found["cow_25"], ratios, "25"),
        *rows(found["cow_2"], ratios, "2"),
    ]
    bars = {"25 columns": found["cow_25"], "2 columns": found["cow_2"]}
    return [*lines, "", *plotted(bars, "spark_cow.svg", "COW read on Spark, local[2]")]


def spark_mor(spec: MorTable, repeat: int) -> list[str]:
    """MOR snapshot against Hudi."""
    path = build(spec)
    contenders = (OURS35, OURS4, SOURCE4, HUDI10, HUDI12)
    works = [Workload("mor_25", path, None), Workload("mor_3", path, ("id", "ts", "d1"))]
    found = compete(contenders, works, repeat)
    both = {HUDI10.name: "faster", HUDI12.name: "faster"}
    ratios = {OURS35.name: both, OURS4.name: both}
    lines = [
        "## Merge-on-read snapshot, to a no-op sink",
        "",
        f"{spec.rows:,} base rows × 20 columns (+ 5 meta) in {spec.groups} file groups, snappy; "
        f"{spec.updates + spec.inserts:,} Avro log records; event-time merge.",
        "",
        *HEAD,
        *rows(found["mor_25"], ratios, "25"),
        *rows(found["mor_3"], ratios, "3"),
    ]
    bars = {"25 columns": found["mor_25"], "3 columns": found["mor_3"]}
    return [*lines, "", *plotted(bars, "spark_mor.svg", "MOR snapshot on Spark, local[2]")]


def spark_plan(spec: ManyFiles, repeat: int) -> list[str]:
    """Planning a whole scan over many files, to the number of Spark tasks."""
    path = build_many(spec)
    contenders = (OURS35, OURS4, HUDI10, HUDI12)
    found = compete(contenders, [Workload("plan", path, None, "plan")], repeat)
    us = median(found["plan"][OURS35.name])
    lines = [
        "## Planning",
        "",
        f"{spec.partitions * spec.files_per_partition:,} files in {spec.partitions:,} partitions "
        "(local disk, no metadata table), from opening the table to the last Spark task, nothing "
        "read.",
        "",
        table_row("contender", "wall s", "CPU s", "ours on Spark 3.5 is faster by"),
        table_row(*["---"] * 4),
    ]
    for name, ss in found["plan"].items():
        wall, cpu = median(ss), median(ss, "cpu_s")
        lines.append(table_row(name, f"{wall:.2f}", f"{cpu:.2f}", f"{wall / us:.1f}×"))
    return [*lines, ""]


def plotted(bars: dict[str, dict[str, list[Sample]]], file: str, title: str) -> list[str]:
    """Draw the medians; the report's line for the plot."""
    medians = {g: {n: median(ss) for n, ss in samples.items()} for g, samples in bars.items()}
    if all(len(ss) > TRIAL for samples in bars.values() for ss in samples.values()):
        plot_bars(medians, RESULTS / file, title)
    return [f"![{title}]({file})", ""]


PARTS = {"spark_cow": spark_cow, "spark_mor": spark_mor, "spark_plan": spark_plan}


def main() -> None:
    """Run the asked parts and write the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=list(PARTS))
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="a trial with tiny tables")
    args = parser.parse_args()
    repeat = TRIAL if args.small else args.repeat
    RESULTS.mkdir(parents=True, exist_ok=True)
    store = RESULTS / "spark.json"
    report: dict[str, list[str]] = json.loads(store.read_text()) if store.exists() else {}
    for part in args.parts or PARTS:
        print(f"… {part}", flush=True)
        size = (SMALL, ManyFiles(20, 10)) if args.small else (MorTable(), ManyFiles())
        lines = PARTS[part](size[part == "spark_plan"], repeat)  # type: ignore[operator]
        print("\n".join(lines), flush=True)
        if repeat > TRIAL:
            report[part] = lines
            store.write_text(json.dumps(report, indent=1) + "\n")
    head = [
        "# Benchmarks: Spark",
        "",
        "Medians of one interleaved run per table, warm processes of `local[2]` with equal heaps; "
        "made by `make bench`. CPU and RSS are those of the JVM and its Python workers together.",
        "",
    ]
    body = [line for part in PARTS if part in report for line in report[part]]
    if repeat > TRIAL:
        (RESULTS / "spark.md").write_text("\n".join([*head, *body]))


if __name__ == "__main__":
    main()
