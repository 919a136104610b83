"""`make bench`: measure, check, and write the report and plots to bench/results.

Figures are ratios of medians within one interleaved run. `python -m bench.run read curves`
runs some parts only; `--repeat` sets the number of rounds.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from bench.contest import RESULTS, contest, median, record
from bench.data import MorTable, build
from bench.plots import plot_bars, plot_curves

PUBLISHED_MS_PER_MILLION = 367.0


def table_row(*cells: object) -> str:
    """One Markdown row."""
    return "| " + " | ".join(str(c) for c in cells) + " |"


def read(repeat: int) -> list[str]:
    """W1: whole table and three columns, against the floor and the Rust reader."""
    table = asdict(MorTable())
    build(MorTable())
    lines = [
        "## Snapshot read of a merge-on-read table",
        "",
        "2 M base rows × 20 columns (+ 5 meta) in 4 file groups, snappy; 400 k Avro log records;"
        " event-time merge. Floor: pyarrow decodes the base files and reads the bytes of the logs.",
        "",
        table_row(
            "columns", "contender", "wall s", "CPU s", "RSS MB", "× floor", "ours is faster by"
        ),
        table_row(*["---"] * 7),
    ]
    bars = {}
    for columns in (25, 3):
        params = {"table": table, "columns": columns}
        samples = contest(
            "mor_read", ["floor", "ours", "ours_stream", "hudi"], params, repeat=repeat
        )
        record("mor_read", params, samples)
        ground, us = median(samples["floor"]), median(samples["ours"])
        for name, ss in samples.items():
            wall = median(ss)
            lines.append(
                table_row(
                    columns,
                    name,
                    f"{wall:.2f}",
                    f"{median(ss, 'cpu_s'):.2f}",
                    f"{median(ss, 'rss_mb'):.0f}",
                    f"{wall / ground:.2f}",
                    f"{wall / us:.2f}×" if name == "hudi" else "",
                )
            )
        bars[f"{columns} columns"] = {n: median(ss) for n, ss in samples.items()}
    plot_bars(bars, RESULTS / "mor_read.svg", "Snapshot read, 2 M + 400 k rows")
    return [*lines, "", "![read](mor_read.svg)", ""]


def large(repeat: int) -> list[str]:
    """The stream of 20 M rows in bounded memory."""
    spec = MorTable(rows=20_000_000, updates=3_400_000, inserts=600_000, groups=40)
    params = {"table": asdict(spec), "columns": 25}
    build(spec)
    samples = contest("mor_read", ["ours_stream"], params, repeat=min(repeat, 2))
    record("mor_read_large", params, samples)
    ss = samples["ours_stream"]
    return [
        "## Twenty million rows as a stream",
        "",
        f"20 M base rows + 4 M log records in 40 slices: {median(ss):.1f} s, peak RSS "
        f"{median(ss, 'rss_mb'):.0f} MB.",
        "",
    ]


def curves(repeat: int) -> list[str]:
    """Log files per slice and blocks per log file, at a constant number of records."""
    small = {"rows": 400_000, "updates": 68_000, "inserts": 12_000, "groups": 2}
    lines = [
        "## Curves",
        "",
        "400 k base rows and 80 k log records in 2 slices, in a process that has read them before.",
        "",
        table_row("axis", "points", "wall s", "largest / smallest"),
        table_row(*["---"] * 4),
    ]
    series = {}
    for axis, points in (
        ("logs_per_slice", [1, 2, 4, 8, 16, 32, 64]),
        ("blocks_per_log", [1, 4, 16, 64, 256, 1024]),
    ):
        walls = []
        specs = [MorTable(**{**small, axis: p}) for p in points]
        for spec in specs:
            build(spec)
        rounds: list[list[float]] = [[] for _ in specs]
        for _ in range(repeat):
            for spec, ss in zip(specs, rounds, strict=True):
                params = {"table": asdict(spec), "columns": 25}
                sample = contest("mor_read", ["ours_warm"], params, repeat=1)
                ss.append(sample["ours_warm"][0].wall_s)
        walls = [sorted(ss)[len(ss) // 2] for ss in rounds]
        series[axis] = (points, walls)
        lines.append(
            table_row(axis, points, [round(w, 3) for w in walls], f"{max(walls) / min(walls):.2f}")
        )
    plot_curves(series, RESULTS / "curves.svg", "Wall seconds, constant number of log records")
    return [*lines, "", "![curves](curves.svg)", ""]


def codec(repeat: int) -> list[str]:
    """W6: the Avro decoder against fastavro and Polars, one core."""
    params = {"records": 200_000}
    samples = contest("avro_decode", ["ours", "fastavro", "polars"], params, repeat=repeat, cores=1)
    record("avro_decode", params, samples)
    us = median(samples["ours"])
    lines = [
        "## Avro decode, 200 000 records × 20 columns, one core",
        "",
        table_row("contender", "s", "records/s", "ours is faster by"),
        table_row(*["---"] * 4),
    ]
    for name, ss in samples.items():
        wall = median(ss)
        lines.append(table_row(name, f"{wall:.3f}", f"{200_000 / wall:,.0f}", f"{wall / us:.1f}×"))
    return [*lines, ""]


def timeline(repeat: int) -> list[str]:
    """Opening over active instants, and the times of archived ones."""
    lines = [
        "## Timelines",
        "",
        table_row("what", "instants", "ms", "ms per 1 000"),
        table_row(*["---"] * 4),
    ]
    for n in (100, 1_000, 10_000, 100_000):
        params = {"instants": n}
        samples = contest("timeline", ["active"], params, repeat=repeat)
        record("timeline_active", params, samples)
        ms = 1000 * median(samples["active"])
        lines.append(
            table_row("open, active instants", f"{n:,}", f"{ms:.1f}", f"{ms / n * 1000:.2f}")
        )
    for n, files in ((1_000_000, 1), (1_000_000, 4), (10_000, 1000)):
        lines += archived_rows(n, files, repeat)
    return [*lines, ""]


def archived_rows(instants: int, files: int, repeat: int) -> list[str]:
    """Rows for one archive: in a process that is warm, as the published figure is, and first."""
    params = {"instants": instants, "files": files}
    samples = contest("timeline", ["archived", "archived_first"], params, repeat=repeat)
    record("timeline_archived", params, samples)
    lines = []
    for contender, told in (("archived", ""), ("archived_first", ", first read of a process")):
        ms = 1000 * median(samples[contender])
        what = f"archived times, {files} files{told}"
        if instants == 1_000_000:
            what += f" ({PUBLISHED_MS_PER_MILLION / ms:.1f}× Hudi's published rate)"
        lines.append(table_row(what, f"{instants:,}", f"{ms:.1f}", f"{ms / instants * 1000:.3f}"))
    return lines


PARTS = {"read": read, "codec": codec, "curves": curves, "timeline": timeline, "large": large}


def main() -> None:
    """Run the asked parts and write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=list(PARTS))
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    RESULTS.mkdir(parents=True, exist_ok=True)
    store = RESULTS / "report.json"
    report: dict[str, list[str]] = json.loads(store.read_text()) if store.exists() else {}
    for part in args.parts or PARTS:
        print(f"… {part}", flush=True)
        report[part] = PARTS[part](args.repeat)
        print("\n".join(report[part]), flush=True)
        store.write_text(json.dumps(report, indent=1) + "\n")
    body = [line for part in PARTS if part in report for line in report[part]]
    head = [
        "# Benchmarks: reading",
        "",
        "Medians of one interleaved run per table on 2 cores; made by `make bench`.",
        "",
    ]
    Path(RESULTS / "reading.md").write_text("\n".join([*head, *body]))


if __name__ == "__main__":
    main()
