"""Benchmarks of keeping the metadata table right: its cost, beside Hudi, and beginning one.

    python -m bench.metadata_writing [overhead changes beginning] [--repeat 3] [--small]

Tables, changes and contenders are those of `bench.keyed`; with a metadata table it has the list of
files, statistics of columns and a record index.
"""

from __future__ import annotations

from dataclasses import replace

from bench.contest import Sample, median, record
from bench.keyed import (
    GROUPS,
    HEAD,
    HUDI10,
    HUDI12,
    MEASURED,
    OURS4,
    OURS35,
    PLAIN,
    SMALL,
    Base,
    Result,
    Sizes,
    Work,
    compete,
    copied,
    rows,
)
from bench.processes import ROOT, Contender, WarmProcess, warm
from bench.report import measure_parts
from bench.run import table_row
from lakewright import Table
from lakewright.metadata.verification import Difference

PROGRAM = ROOT / "bench" / "workloads" / "metadata_starter.py"
OVERHEAD_MOST = 0.25
FASTER = 5.0
BEGINNING_FASTER = 3.0
BEGUN = {"files", "column_stats", "bloom_filters", "record_index"}
FILTERS = {"hoodie.metadata.index.bloom.filter.enable": "true"}
SHARES = (0.001, 0.01, 0.05, 0.2)
GAVE_UP = (
    "Hudi 1.0.2 fails on statistics of its own logs where a timestamp or a decimal is null; so it "
    "does on tables that it made itself."
)
CHANGES = {
    "MERGE_ON_READ, upsert of 200 rows": ("mor_200", "mor", 200),
    "MERGE_ON_READ, upsert of 1 %": ("mor_1", "mor", 0.01),
    "MERGE_ON_READ, upsert of 20 %": ("mor_20", "mor", 0.2),
    "COPY_ON_WRITE, upsert of 20 %": ("cow_20", "cow", 0.2),
}


def overhead(sizes: Sizes, repeat: int) -> list[str]:
    """The same upserts with and without a metadata table, and how long the lock was held."""
    contenders = (PLAIN, OURS35)
    works = [
        Work(
            f"{kind}_{share:g}{'_indexed' if on else ''}", Base(kind, sizes.rows, indexes=on), share
        )
        for kind in ("mor", "cow")
        for share in SHARES
        for on in (False, True)
    ]
    found = compete(contenders, works, repeat, beside=2)
    lines = [
        "## What it costs",
        "",
        f"Upserts into {sizes.rows:,} rows × 20 columns in {GROUPS} file groups, without a "
        "metadata table and with one, in turns. Lock: the longest time that it was held, with it.",
        "",
        table_row(
            "table", "rows of the upsert", "contender", "without s", "with s", "more", "lock ms"
        ),
        table_row(*["---"] * 7),
    ]
    for kind in ("mor", "cow"):
        for share in SHARES:
            without, with_ = (found[f"{kind}_{share:g}{end}"] for end in ("", "_indexed"))
            count = int(sizes.rows * share)
            for c in contenders:
                plain, more = median(without.samples[c.name]), median(with_.samples[c.name])
                held = max(int(s.check) for s in with_.samples[c.name])
                cells = (c.name, f"{plain:.2f}", f"{more:.2f}", f"{more / plain - 1:.0%}", held)
                lines.append(table_row(kind, f"{count:,}", *cells))
    return [*lines, ""]


def changes(sizes: Sizes, repeat: int) -> list[str]:
    """Ours beside real Hudi, with the metadata table on."""
    works = {
        title: Work(f"indexed_{name}", Base(kind, sizes.rows, indexes=True), share)
        for title, (name, kind, share) in CHANGES.items()
    }
    found = compete((PLAIN, OURS35, OURS4, HUDI10, HUDI12), [*works.values()], repeat)
    lines = ["## Beside Hudi", "", "The same upserts, all with the metadata table on.", ""]
    for title, work in works.items():
        lines += [f"### {title}", "", table_row(*HEAD), table_row(*["---"] * len(HEAD))]
        lines += [*rows(found[work.name]), ""]
    if any(HUDI10.name in result.gave_up for result in found.values()):
        lines += [GAVE_UP, ""]
    return lines


def beginning(sizes: Sizes, repeat: int) -> list[str]:
    """A metadata table with all indexes for a table that has none.

    Hudi begins one with the next write: what counts is how much longer that takes than a write of
    the same single row without it.
    """
    base = Base("cow", sizes.rows)
    contenders = (PLAIN, HUDI10, HUDI12)
    one = Work("one_row", base, 1)
    result = Result()
    with warm(contenders, PROGRAM) as homes:
        for number in range(repeat + 1):  # the first round warms up
            for c in contenders:
                sample = _begun(homes[c.home], c, one)
                if number:
                    result.samples.setdefault(c.name, []).append(sample)
    if sizes.rows >= MEASURED:
        record("metadata_beginning", {"base": str(base)}, result.samples)
    return [
        "## Beginning one",
        "",
        f"{', '.join(f'`{index}`' for index in sorted(BEGUN))} for {sizes.rows:,} rows × 20 "
        f"columns in {GROUPS} file groups; of Hudi the write of one row that begins them, less the "
        "same write without.",
        "",
        table_row(*HEAD),
        table_row(*["---"] * len(HEAD)),
        *rows(result),
        "",
    ]


def _begun(process: WarmProcess, c: Contender, one: Work) -> Sample:
    request = {**one.request(c, one.base.table()), "indexes": True, "more": FILTERS}
    with copied(one.base.table()) as path:
        sample = process.ask({**request, "path": str(path)})
        found = [f for f in Table.open(path).metadata.verify() if isinstance(f, Difference)]
        built = Table.open(path).properties.metadata_partitions
    if found or {*built} - {"partition_stats"} != BEGUN:
        raise SystemExit(f"{c.name} began {built}, with differences: {found[:3]}")
    if c.how != "hudi":
        return sample
    with copied(one.base.table()) as path:
        plain = process.ask({**request, "path": str(path), "indexes": False, "more": {}})
    return replace(sample, wall_s=sample.wall_s - plain.wall_s, cpu_s=sample.cpu_s - plain.cpu_s)


PARTS = {"overhead": overhead, "changes": changes, "beginning": beginning}
DOCUMENT = [
    "# Benchmarks: keeping the metadata table right",
    "",
    "Medians of interleaved runs, warm processes on 2 cores (`local[2]` and equal heaps on "
    "Spark); made by `make bench-metadata-writing`.",
    "",
]


if __name__ == "__main__":
    measure_parts("metadata_writing", DOCUMENT, PARTS, Sizes(), SMALL, about=__doc__)
