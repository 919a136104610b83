"""Compare what Spark reads with what a scan reads, for every real table at hand, cell for cell.

    python -m interop.spark_rows [--store FOLDER] [--only PATTERN ...]

Runs in an environment of Spark (`.venv-spark35`, `.venv`) and needs no Hudi: the tables are
those that `interop.run` has stored, the committed ones under `tests/tables`, and the shared set
where it is beside the project. Each table is read through `SparkTable` whole, with columns and a
filter, by workers alone, read-optimized and as changes, and on Spark 4 as the format `lakewright`.
Names, order and types of columns, and all cells, must be those of `Table.scan`; where a scan
refuses, Spark must refuse with the same error.

Prints every difference and one line of summary (progress goes to stderr); the exit status is 1 if
there was any difference, or no table.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

import lakewright as lw
from interop.compare import difference
from lakewright.spark import SparkTable, register, session
from lakewright.spark.schema import spark_schema, to_wire
from tests.corpus import committed_tables
from tests.fixtures import shared_tables, unpack

ROOT = Path(__file__).resolve().parents[1]
STORE = ROOT / ".cache" / "interop"
FORMAT = "lakewright"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "2",
    "spark.executor.heartbeatInterval": "1h",  # a machine may be busy with other things
    "spark.network.timeout": "2h",
}


@dataclass(frozen=True)
class RealTable:
    """A table, and how to come by its folder."""

    name: str
    folder: Callable[[Path], Path]


@dataclass(frozen=True)
class Read:
    """One read, both ways; both are called, and may raise."""

    name: str
    scan: Callable[[], lw.Scan | lw.Changes]
    spark: Callable[[], DataFrame]


def main(arguments: Sequence[str]) -> int:
    """Compare all tables; the exit status."""
    parser = argparse.ArgumentParser(prog="interop.spark_rows", description=__doc__.splitlines()[0])
    parser.add_argument("--store", type=Path, default=STORE, help="what interop.run has stored")
    parser.add_argument("--only", nargs="*", default=["*"], help="patterns of table names")
    parser.add_argument("--master", default="local[2]", help="where Spark runs")
    asked = parser.parse_args(arguments)
    tables = [t for t in real_tables(asked.store) if any(fnmatch(t.name, p) for p in asked.only)]
    spark = session("spark_rows", master=asked.master, config=SETTINGS)
    outcomes: Counter[str] = Counter()
    for number, table in enumerate(tables, 1):
        outcomes.update(compared(spark, table))
        print(f"{number}/{len(tables)} {table.name}", file=sys.stderr, flush=True)
    version = spark.version
    spark.stop()
    counts = ", ".join(f"{outcomes[name]} {name}" for name in ("equal", "refused", "different"))
    whole = outcomes["tables"]
    print(f"Spark {version}: {whole} of {len(tables)} tables equal ({counts} reads)")
    return 1 if outcomes["different"] or not tables else 0


def real_tables(store: Path) -> Iterator[RealTable]:
    """Every real table at hand."""
    for shared in shared_tables():
        yield RealTable(f"shared/{shared.id}", lambda into, t=shared: unpack(t, into))  # type: ignore[misc]
    for committed in committed_tables():
        yield RealTable(f"committed/{committed.name}", committed.unpack)
    for file in sorted(store.glob("*/*/case.json")):
        if json.loads(file.read_text())["error"] is None:
            name = f"{file.parent.parent.name}/{file.parent.name}"
            yield RealTable(name, lambda _, folder=file.parent / "table": folder)  # type: ignore[misc]


def compared(spark: SparkSession, table: RealTable) -> Counter[str]:
    """The outcomes of all reads of one table; one more, `tables`, if none differs."""
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as scratch:
        path = table.folder(Path(scratch))
        for read in reads(spark, str(path)):
            outcome, told = compared_read(read)
            outcomes[outcome] += 1
            if told:
                print(f"{table.name} {read.name}: {told}", flush=True)
    outcomes["tables"] = int(not outcomes["different"])
    return outcomes


def reads(spark: SparkSession, path: str) -> Iterator[Read]:
    """The reads of one table; a single one where it cannot be opened."""

    def opened(**options: Any) -> SparkTable:
        return SparkTable.open(spark, path, **options)

    yield Read("whole", lambda: lw.Table.open(path).scan(), lambda: opened().read())
    try:
        table = lw.Table.open(path)
        some = some_of(table)
        merged = table.properties.table_type == "MERGE_ON_READ"
        has_meta = table.properties.populate_meta_fields
    except lw.LakewrightError:
        return
    yield Read("workers", lambda: table.scan(), lambda: opened(jvm_scan=False).read())
    yield Read("some", lambda: table.scan(**some), lambda: opened().read(**some))
    if merged:
        base: dict[str, Any] = {"mode": "read_optimized"}
        yield Read("base files", lambda: table.scan(**base), lambda: opened().read(**base))
    if has_meta:
        yield Read("changes", lambda: table.changes(), lambda: opened().changes())
    if register(spark):
        loaded = spark.read.format(FORMAT)
        yield Read(FORMAT, lambda: table.scan(), lambda: loaded.load(path))


def some_of(table: lw.Table) -> dict[str, Any]:
    """Every other column, from the last one on, and a filter that about half of the rows pass."""
    names = table.schema.names[::-2]
    first = table.schema.names[-1]
    key = "_hoodie_record_key" if "_hoodie_record_key" in table.schema.names else first
    if not pa.types.is_string(table.schema.field(key).type):
        return {"columns": names, "where": lw.col(key).is_not_null()}
    keys = sorted(k for k in table.scan(columns=[key]).to_arrow()[key].to_pylist() if k is not None)
    middle = keys[len(keys) // 2] if keys else ""
    return {"columns": names, "where": lw.col(key) <= middle}


def compared_read(read: Read) -> tuple[str, str]:
    """`equal`, `refused` or `different`, and what differs in a few words."""
    try:
        found = read.scan()
        wanted = found.to_arrow()
    except lw.LakewrightError as error:
        return refused(read, error)
    try:
        frame = read.spark()
        if frame.schema != spark_schema(wanted.schema):
            return "different", f"columns {frame.schema.simpleString()}"
        told = difference(collected(frame), in_sparks_form(wanted))
    except Exception as error:  # whatever it is, it is a difference
        return "different", f"{type(error).__name__}: {error}"
    return ("different", told) if told else ("equal", "")


def refused(read: Read, expected: lw.LakewrightError) -> tuple[str, str]:
    """Spark must refuse with the error of the scan, on the driver or in a worker."""
    name = type(expected).__name__
    try:
        rows = read.spark().count()
    except Exception as error:
        same = isinstance(error, type(expected)) or name in str(error)
        told = f"{type(error).__name__} instead of {name}: {str(error)[:400]}"
        return ("refused", "") if same else ("different", told)
    return "different", f"{rows} rows, but a scan refuses: {expected}"


def collected(frame: DataFrame) -> pa.Table:
    """The rows of a DataFrame as Arrow, also on Spark 3.5."""
    if hasattr(frame, "toArrow"):
        return frame.toArrow()
    return pa.Table.from_batches(frame._collect_as_arrow(), to_arrow_schema(frame.schema))  # noqa: SLF001


def in_sparks_form(table: pa.Table) -> pa.Table:
    """What a scan gives, with times of day as numbers and the like, as Spark shows them."""
    wire = to_wire(table.schema)
    return pa.Table.from_batches([wire.apply(b) for b in table.to_batches()], wire.schema)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
