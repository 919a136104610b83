"""Make the tables under `tests/tables` with real Hudi.

    python -m interop.make_committed_tables [patterns]

For each table a ZIP (with modification times; checksum side files left out) and one Parquet file
per query with Hudi's own answer; `manifest.json` says what is what. Tables are made under one
neutral folder, because plans and rollbacks hold absolute paths.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
import zipfile
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from interop.cases import Case
from interop.committed_tables import committed_cases
from interop.generate import make
from interop.hudi import ROOT
from interop.run import Hudis

INTO = ROOT / "tests" / "tables"
NEUTRAL = Path("/tmp/lakewright-corpus")


def main(arguments: Sequence[str]) -> int:
    """Make the tables whose names match; the exit status."""
    patterns = list(arguments) or ["*"]
    manifest_file = INTO / "manifest.json"
    INTO.mkdir(parents=True, exist_ok=True)
    manifest = {
        row["name"]: row
        for row in (json.loads(manifest_file.read_text()) if manifest_file.exists() else [])
    }
    cases = committed_cases()
    hudis = Hudis()
    try:
        for case in cases:
            if any(fnmatchcase(case.name, pattern) for pattern in patterns):
                described = make(case, hudis, NEUTRAL)
                if described["error"]:
                    print(f"{case.name}: {described['error']}", file=sys.stderr)
                    return 1
                manifest[case.name] = keep(case, described)
                print(f"made {case.name}")
    finally:
        hudis.close()
        shutil.rmtree(NEUTRAL, ignore_errors=True)
    rows = [manifest[case.name] for case in cases if case.name in manifest]
    manifest_file.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


def keep(case: Case, described: dict[str, Any]) -> dict[str, Any]:
    """Pack one table and its answers; its row of the manifest."""
    folder = NEUTRAL / case.hudi / case.name
    for old in INTO.glob(f"{case.name}.*"):
        old.unlink()
    pack(folder / "table", INTO / f"{case.name}.zip")
    answers = {}
    for answer in described["answers"]:
        if answer["error"] is None:
            file = f"{case.name}.{answer['query']}.parquet"
            pq.write_table(pq.read_table(folder / answer["file"]), INTO / file, compression="zstd")
            answers[answer["query"]] = file
    return {
        "name": case.name,
        "hudi": case.hudi,
        "table_version": case.traits.table_version,
        "type": case.traits.type,
        "note": case.note,
        "answers": answers,
    }


def pack(table: Path, archive: Path) -> None:
    """A ZIP of a table's files, folders included, without checksum side files."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for path in sorted(table.rglob("*")):
            if path.name.startswith(".") and path.name.endswith(".crc"):
                continue
            name = f"table/{path.relative_to(table)}" + ("/" if path.is_dir() else "")
            stamp = time.gmtime(path.stat().st_mtime)[:6]
            info = zipfile.ZipInfo(name, stamp)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (0o40755 << 16) | 0x10 if path.is_dir() else 0o100644 << 16
            packed.writestr(info, b"" if path.is_dir() else path.read_bytes())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
