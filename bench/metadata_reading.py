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
"""Rounds of the JVM that do not count."""


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
    params = {"index": asdict(spec), "keys": KEYS}
    theirs: list[float] = []
    ours: list[Sample] = []
    for _ in range(2):  # they take turns
        ours += contest("metadata_reading", ["look_up"], params, repeat=repeat)["look_up"]
        theirs += looked_up_by_hudi(spec, table, repeat)
    record("metadata_look_up", {**params, "hudi_s": theirs}, {"look_up": ours})
    wall, hudi = median(ours), statistics.median(theirs)
    holds = wall <= LOOK_UP_S and hudi / wall >= LOOK_UP_FASTER
    return [
        "## Looking keys up in a record index",
        "",
        f"{KEYS:,} random keys of {spec.keys:,} in {spec.groups} file groups, from opening the "
        f"metadata table on. Hudi {RELEASE} is warm after {WARM_UP} rounds; we are not.",
        "",
        table_row("who", "wall s", "CPU s", "RSS MB"),
        table_row(*["---"] * 4),
        table_row(
            "ours", f"{wall:.2f}", f"{median(ours, 'cpu_s'):.2f}", f"{median(ours, 'rss_mb'):.0f}"
        ),
        table_row(f"Hudi {RELEASE}", f"{hudi:.2f}", "", ""),
        "",
        f"{hudi / wall:.1f} times faster; wanted {LOOK_UP_S} s and {LOOK_UP_FASTER:.0f} times: "
        f"{'holds' if holds else 'MISSED'}.",
        "",
    ]


def looked_up_by_hudi(spec: KeyIndex, table: Path, repeat: int) -> list[float]:
    """Seconds of each round that counts."""
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
    return [float(seconds) for seconds, _ in rounds[WARM_UP:]]


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
