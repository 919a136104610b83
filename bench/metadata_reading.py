"""Benchmarks of reading through the metadata table: planning, and looking keys up.

    python -m bench.metadata_reading [planning look_up] [--repeat 5]

Contenders take turns in fresh processes and must agree on the result before they are timed.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from bench.contest import Sample, contest, median, record
from bench.metadata_tables import KeyIndex, ManyFiles
from bench.report import Report
from bench.run import table_row
from bench.workloads.metadata_reading import Counting, asked_keys, by_footers, by_metadata
from interop.hfiles import OPENED
from interop.hudi import JARS, ROOT

KEYS = 100_000
PLANNING_FASTER = 10.0
LOOK_UP_S = 0.6
LOOK_UP_FASTER = 3.0
RELEASE = "1.0.2"
WARM_UP = 2
"""Rounds that do not count."""
TURNS = 3


def planning(repeat: int) -> list[str]:
    """A query with a selective filter over many files."""
    spec = ManyFiles()
    path = spec.table()
    params = {"table": asdict(spec)}
    samples = contest("metadata_reading", ["metadata", "footers"], params, repeat=repeat)
    record("metadata_planning", params, samples)
    asked: dict[str, Counter[str]] = {}
    for name, how in (("metadata", by_metadata), ("footers", by_footers)):
        storage = Counting(str(path))
        kept = how(storage, spec)
        asked[name] = storage.requests
    times = {name: median(ss) for name, ss in samples.items()}
    faster = times["footers"] / times["metadata"]
    lines = [
        "## Planning a query with a selective filter",
        "",
        f"{spec.files:,} base files in {spec.partitions} partitions, {len(kept)} of them have rows "
        f"that pass `{spec.where}`. From opening the table to the list of files to read, cold.",
        "",
        table_row("by", "wall s", "CPU s", "reads", "listings"),
        table_row(*["---"] * 5),
    ]
    for name, words in (("metadata", "metadata table"), ("footers", "folders and footers")):
        cells = (f"{times[name]:.3f}", f"{median(samples[name], 'cpu_s'):.3f}")
        lines.append(table_row(words, *cells, asked[name]["read"], asked[name]["list"]))
    verdict = "holds" if faster >= PLANNING_FASTER else "MISSED"
    return [*lines, "", f"{faster:.1f} times faster; wanted {PLANNING_FASTER:.0f}: {verdict}.", ""]


def look_up(repeat: int) -> list[str]:
    """Random keys in a record index."""
    spec = KeyIndex()
    table = spec.table()
    params = {"index": asdict(spec), "keys": KEYS, "warm_up": WARM_UP}
    names = ["look_up", "look_up_warm"]
    ours: dict[str, list[Sample]] = {name: [] for name in names}
    theirs: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(TURNS):
        for name, samples in contest("metadata_reading", names, params, repeat=repeat).items():
            ours[name] += samples
        first, *others = looked_up_by_hudi(spec, table, repeat)
        theirs["look_up"].append(first)
        theirs["look_up_warm"] += others
    record("metadata_look_up", {**params, "hudi_s": theirs}, ours)
    lines = [
        "## Looking keys up in a record index",
        "",
        f"{KEYS:,} random keys of {spec.keys:,} in {spec.groups} file groups, from opening the "
        f"metadata table on; for the first time in a process, and after {WARM_UP} rounds.",
        "",
        table_row("round", f"Hudi {RELEASE} s", "ours s", "CPU s", "RSS MB", "faster"),
        table_row(*["---"] * 6),
    ]
    holds = True
    for name, words in zip(names, ("first", "warm"), strict=True):
        wall, hudi = median(ours[name]), statistics.median(theirs[name])
        holds = holds and wall <= LOOK_UP_S and hudi / wall >= LOOK_UP_FASTER
        more = (median(ours[name], "cpu_s"), median(ours[name], "rss_mb"))
        cells = (f"{hudi:.2f}", f"{wall:.2f}", f"{more[0]:.2f}", f"{more[1]:.0f}")
        lines.append(table_row(words, *cells, f"{hudi / wall:.1f}×"))
    verdict = "holds" if holds else "MISSED"
    return [*lines, "", f"Wanted {LOOK_UP_S} s and {LOOK_UP_FASTER:.0f}×: {verdict}.", ""]


def looked_up_by_hudi(spec: KeyIndex, table: Path, repeat: int) -> list[float]:
    """Seconds of the first round, and of each after the warm-up."""
    spark = next((ROOT / ".venv-hudi").glob("lib/python*/site-packages/pyspark/jars"))
    jar = JARS / f"hudi-spark3.5-bundle_2.12-{RELEASE}.jar"
    source = Path(__file__).with_name("RecordIndexLookUp.java")
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
        keys.write("\n".join(asked_keys(spec, KEYS)["key"].to_pylist()))
        keys.flush()
        done = subprocess.run(
            [
                *("taskset", "-c", "0-1", "java", "-Xmx4g", *OPENED, "-cp", f"{jar}:{spark}/*"),
                *(str(source), str(table), keys.name, str(WARM_UP + repeat)),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise SystemExit(f"Hudi's look-up failed:\n{done.stderr[-4000:]}")
    rounds = [line.split() for line in done.stdout.splitlines()[-WARM_UP - repeat :]]
    if {int(found) for _, found in rounds} != {KEYS}:
        raise SystemExit(f"Hudi did not find all keys: {rounds}")
    return [float(seconds) for seconds, _ in (rounds[0], *rounds[WARM_UP:])]


PARTS = {"planning": planning, "look_up": look_up}
HEAD = ["# Reading through the metadata table", ""]


def main() -> None:
    """Measure the parts that are asked for, and write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=list(PARTS))
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    report = Report("metadata_reading")
    for part in arguments.parts:
        lines = PARTS[part](arguments.repeat)
        print("\n".join(lines))
        report.keep(part, lines)
    report.write(HEAD, PARTS)


if __name__ == "__main__":
    main()
