"""Make the answers under `tests/changes` with real Hudi: every range of the committed tables.

    python -m interop.make_committed_changes [patterns]

The tables under `tests/tables` are asked as they are; a few tables with change data are made and
packed here. For each table one Parquet file per mode with the rows of all ranges (`_range` is the
number of the range); `manifest.json` lists the ranges.
"""

from __future__ import annotations

import json
import shutil
import sys
import zipfile
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from interop.change_cases import change_cases
from interop.change_ranges import Asked, asked_table
from interop.changes import LABEL, ask, make
from interop.hudi import ROOT
from interop.make_committed_tables import NEUTRAL, pack
from interop.run import Hudis

TABLES = ROOT / "tests" / "tables"
INTO = ROOT / "tests" / "changes"
MADE = ("v6_mor_cdc_data_before_after", "v8_cow_cdc_data_before", "v9_mor_cdc_op_key_only")


def main(arguments: Sequence[str]) -> int:
    """Ask the tables whose names match; the exit status."""
    patterns = list(arguments) or ["*"]
    INTO.mkdir(parents=True, exist_ok=True)
    file = INTO / "manifest.json"
    known = json.loads(file.read_text()) if file.exists() else []
    manifest = {row["name"]: row for row in known}
    hudis = Hudis()
    try:
        for name, asked in tables(patterns, hudis):
            ask(asked, hudis(asked.judge))
            manifest[name] = keep(name, asked)
            print(f"asked {name}")
    finally:
        hudis.close()
        shutil.rmtree(NEUTRAL, ignore_errors=True)
    rows = [manifest[name] for name in sorted(manifest)]
    file.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


def tables(patterns: Sequence[str], hudis: Hudis) -> Iterator[tuple[str, Asked]]:
    """The committed tables, unpacked where they were made, and those that are made here."""

    def wanted(name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in patterns)

    for row in json.loads((TABLES / "manifest.json").read_text()):
        if wanted(row["name"]):
            folder = NEUTRAL / row["hudi"] / row["name"]
            with zipfile.ZipFile(TABLES / f"{row['name']}.zip") as packed:
                packed.extractall(folder)
            yield row["name"], asked_table(folder)
    for case in change_cases():
        if case.name in MADE and wanted(case.name):
            asked = make(case, hudis(case.hudi), NEUTRAL)
            assert asked is not None, case.name
            pack(asked.table, INTO / f"{case.name}.zip")
            yield case.name, asked


def keep(name: str, asked: Asked) -> dict[str, Any]:
    """Store the answers of one table; its row of the manifest."""
    said = json.loads((asked.folder / "changes.json").read_text())
    row: dict[str, Any] = {"name": name, "judge": said["judge"], "ranges": []}
    parts: dict[str, list[pa.Table]] = {"rows": [], "cdc": []}
    for number, entry in enumerate(said["ranges"]):
        told = {key: entry[key] for key in ("mode", "begin", "end", "query")}
        cause = entry["error"] and entry["error"].rpartition("Caused by: ")[-1]
        row["ranges"].append({**told, "error": cause, "number": number})
        if entry["error"] is None:
            answer = pq.read_table(asked.folder / entry["file"])
            label = pa.repeat(pa.scalar(number, pa.int32()), answer.num_rows)
            parts[entry["mode"]].append(answer.append_column(LABEL, label))
    for mode, answers in parts.items():
        file = INTO / f"{name}.{mode}.parquet"
        file.unlink(missing_ok=True)
        if answers:
            pq.write_table(pa.concat_tables(answers), file, compression="zstd")
    return row


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
