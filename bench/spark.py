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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.contest import RESULTS, Sample, median, record
from bench.data import MorTable, build
from bench.plots import plot_bars
from bench.processes import NEWEST, ROOT, Contender, warm
from bench.run import table_row
from bench.spark_data import ManyFiles, build_cow, build_many

PROGRAM = ROOT / "bench" / "workloads" / "spark_reader.py"
WARM_UP = 3
TRIAL = 1
"""So many rounds are no measurement: nothing of them is kept."""
SMALL = MorTable(rows=40_000, updates=6_800, inserts=1_200, groups=4)


PARQUET35 = Contender("parquet, Spark 3.5", "spark35", "parquet")
OURS35 = Contender("ours, Spark 3.5", "spark35", "ours")
PARQUET4 = Contender("parquet, Spark 4", NEWEST, "parquet")
OURS4 = Contender("ours, Spark 4", NEWEST, "ours")
SOURCE4 = Contender("ours as a format, Spark 4", NEWEST, "source")
HUDI10 = Contender("Hudi 1.0.2", "1.0.2", "hudi")
HUDI12 = Contender("Hudi 1.2.0", "1.2.0", "hudi")


@dataclass(frozen=True)
class Workload:
    """What is read."""

    name: str
    path: Path
    columns: tuple[str, ...] | None
    do: str = "noop"

    def request(self, how: str, do: str) -> dict[str, object]:
        """What a process is asked."""
        return {"read": how, "path": str(self.path.resolve()), "columns": self.columns, "do": do}


def compete(
    contenders: Sequence[Contender], workloads: Sequence[Workload], repeat: int
) -> dict[str, dict[str, list[Sample]]]:
    """Samples by workload and contender; refuses to time contenders that do not agree."""
    found: dict[str, dict[str, list[Sample]]] = {}
    with warm(contenders, PROGRAM) as homes:
        for work in workloads:
            checks = {
                c.name: homes[c.home].ask(work.request(c.how, "check")).check for c in contenders
            }
            if len(set(checks.values())) > 1:
                raise SystemExit(f"{work.name}: contenders disagree: {checks}")
            samples: dict[str, list[Sample]] = {c.name: [] for c in contenders}
            for number in range(WARM_UP + repeat):
                for c in contenders:
                    sample = homes[c.home].ask(work.request(c.how, work.do))
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
