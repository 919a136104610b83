"""Parquet: footers, statistics and row groups, and the places where small Parquet files stand in.

Arrow's own view of a footer is not safe on damaged bytes (it ends the process), so what is under
fire here is the whole road that the product takes through it. Batches must be sound and as long as
the footer says. A column that the damage left alone must come out as it was: where the footer is
the seed's, every column whose pages are; where all pages are the seed's, every column that the
changed footer still describes with the same name, type and nullability. Pages without checksums may
hold other values, and a footer may give a column another name or type: nothing in the format tells.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from lakewright.codec.parquet import ParquetFooter, open_parquet, read_columns, row_group_range
from lakewright.errors import FormatError, UnsupportedTableError
from lakewright.format import property_keys as keys
from lakewright.format.archived_timeline import archived_instants
from lakewright.format.history import (
    HISTORY_SCHEMA,
    HistoryFile,
    encode_history_file,
    format_manifest,
    read_history,
)
from lakewright.format.partitions import format_partition_metadata, read_partition_metadata
from lakewright.format.records import CommitMetadata
from lakewright.format.table_properties import TableProperties
from lakewright.storage.memory import MemoryStorage
from lakewright.testing.fuzz.corpus import Corpus, Seed
from lakewright.testing.fuzz.judging import PATH, Case, Target, demand, same_values
from lakewright.testing.fuzz.made import parquet_files
from lakewright.testing.fuzz.mutators import mutate_plainly

__all__ = ["TARGETS"]

_MAGIC: Final = b"PAR1"
_TOKENS: Final = (_MAGIC, b"PARE", b"\x15\x00", b"\x19\x1c", b"\x18\x04", b"\x00", b"\x2c")


def _parquet_seeds(corpus: Corpus) -> list[Seed]:
    made = [Seed(f"made:parquet-{name}", data) for name, data in parquet_files().items()]
    real = corpus.matching(r"^(?!.*/history/).*\.parquet$", limit=20, bytes_max=24 << 10)
    return [*made, *real]


def _check_parquet(case: Case) -> None:
    footer = ParquetFooter.read(case.data, PATH)
    for group in footer.row_groups:
        for name in footer.schema.names:
            told = group.statistics(name)
            demand((told.minimum is None) == (told.maximum is None), "half of a range")
    file = open_parquet(case.data, path=PATH, dictionary=())
    for number in range(file.metadata.num_row_groups):
        for name in footer.schema.names:
            row_group_range(file, number, name)
    table = read_columns(file, path=PATH)
    table.validate()
    demand(table.num_rows == footer.num_rows, "another number of rows than the footer tells")
    _hold_against_seed(case, table, file.footer_offset)


@dataclass(frozen=True, slots=True)
class _Known:
    """An undamaged file: its rows, and where they are stored."""

    rows: pa.Table
    footer_offset: int
    chunks: dict[str, list[tuple[int, int]]]
    """Begin and end of the pages of each top-level column."""


@lru_cache(maxsize=64)
def _known(data: bytes) -> _Known:
    file = open_parquet(data, path=PATH)
    chunks: dict[str, list[tuple[int, int]]] = {}
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        for chunk in map(group.column, range(group.num_columns)):
            begin = chunk.dictionary_page_offset or chunk.data_page_offset
            place = (begin, begin + chunk.total_compressed_size)
            chunks.setdefault(chunk.path_in_schema.split(".")[0], []).append(place)
    return _Known(read_columns(file, path=PATH), file.footer_offset, chunks)


def _hold_against_seed(case: Case, table: pa.Table, footer_offset: int) -> None:
    known, seed = _known(case.seed.data), case.seed.data
    end = known.footer_offset
    if len(case.data) == len(seed) and case.data[end:] == seed[end:]:
        alone = [
            name
            for name, places in known.chunks.items()
            if name in table.column_names and all(case.data[a:b] == seed[a:b] for a, b in places)
        ]
    elif footer_offset == end and case.data[:end] == seed[:end]:
        demand(table.num_rows == known.rows.num_rows, "rows of untouched pages are gone or new")
        alone = [f.name for f in known.rows.schema if _described_alike(f, table.schema)]
    else:
        return
    for name in alone:
        same = same_values(table.column(name), known.rows.column(name))
        demand(same, f"other values in the untouched column {name}")


def _described_alike(field: pa.Field, schema: pa.Schema) -> bool:
    at = schema.get_field_index(field.name)
    return at >= 0 and bool(schema.field(at).equals(field))


def _change_footer(data: bytes, random: Random) -> bytes:
    """Damage inside the footer, with its length set right."""
    if len(data) < 12:
        return data
    (length,) = struct.unpack_from("<I", data, len(data) - 8)
    if length > len(data) - 12:
        return data
    start = len(data) - 8 - length
    footer = mutate_plainly(data[start:-8], random)
    return data[:start] + footer + struct.pack("<I", len(footer)) + data[-4:]


def _change_pages(data: bytes, random: Random) -> bytes:
    """Damage before the footer that keeps every offset."""
    if len(data) < 24:
        return data
    (length,) = struct.unpack_from("<I", data, len(data) - 8)
    end = max(len(data) - 8 - length, 12)
    changed = mutate_plainly(data[4:end], random)[: end - 4].ljust(end - 4, b"\x00")
    return data[:4] + changed + data[end:]


# ---- the archived timeline of versions 8 and 9 --------------------------------------------------

_PROPERTIES: Final = TableProperties({keys.NAME: "t", keys.VERSION: "8", keys.LAYOUT_VERSION: "2"})
_FOLDER: Final = ".hoodie/timeline/history"
_TIME: Final = "instantTime"
_STORED: Final = (_TIME, "completionTime", "action", "metadata", "plan")
_FILE: Final = "20240101000000000_20240103000000000_0.parquet"


def _history_seeds(corpus: Corpus) -> list[Seed]:
    times = ["20240101000000000", "20240102000000000", "20240103000000000"]
    columns = [times, [f"{t[:-1]}5" for t in times], ["commit", "clean", "deltacommit"]]
    done = CommitMetadata(operation_type="UPSERT").write(_PROPERTIES.version)
    filled = [[b"", None, done], [None, None, None]]
    rows = pa.table(
        [pa.array(c, f.type) for c, f in zip([*columns, *filled], HISTORY_SCHEMA, strict=True)],
        schema=HISTORY_SCHEMA,
    )
    made = Seed("made:history", encode_history_file(rows))
    return [made, *corpus.matching(r"/history/[^/]*\.parquet$", limit=8, bytes_max=40 << 10)]


def _check_history(case: Case) -> None:
    storage = MemoryStorage()
    storage.replace(f"{_FOLDER}/{_FILE}", case.data)
    storage.replace(f"{_FOLDER}/_version_", b"1")
    manifest = format_manifest([HistoryFile.of(_FILE, len(case.data))])
    storage.replace(f"{_FOLDER}/manifest_1", manifest)
    table = read_history(storage, _PROPERTIES, columns=HISTORY_SCHEMA.names)
    table.validate()
    times = table.column("requested_time").to_pylist()
    demand(times == sorted(set(times)), "instants are not in order, or twice")
    for instant in archived_instants(storage, _PROPERTIES):
        demand(instant.requested_time in times, "an instant from nowhere")
    path = f"{_FOLDER}/{_FILE}"
    file = open_parquet(case.data, path=path)
    stored = read_columns(file, path=path, columns=_STORED)
    _hold_against_seed(case, stored, file.footer_offset)
    if stored.schema.field(_TIME).type == pa.string():
        demand(times == sorted(set(stored.column(_TIME).to_pylist())), "instants are gone or new")


# ---- partition metadata -------------------------------------------------------------------------


def _partition_seeds(corpus: Corpus) -> list[Seed]:
    text = format_partition_metadata("20240101000000000", 2, now_ms=1_700_000_000_000)
    table = pa.table({"x": pa.array([], pa.string())})
    told = {"commitTime": "20240101000000000", "partitionDepth": "1"}
    table = table.replace_schema_metadata(told)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    real = corpus.matching(r"/\.hoodie_partition_metadata(\.parquet)?$", limit=8)
    return [
        Seed("made:partition-text", text),
        Seed("made:partition-parquet", bytes(sink.getvalue())),
        *real,
    ]


def _check_partition(case: Case) -> None:
    is_parquet = _MAGIC in (case.seed.data[:4], case.data[:4])
    name = ".hoodie_partition_metadata" + (".parquet" if is_parquet else "")
    storage = MemoryStorage()
    storage.replace(f"p/{name}", case.data)
    told = read_partition_metadata(storage, "p")
    demand(told is not None, "a partition is none")


TARGETS: Final = (
    Target(
        name="parquet",
        about="Parquet files: footers, statistics, row groups",
        seeds=_parquet_seeds,
        check=_check_parquet,
        allowed=(FormatError, UnsupportedTableError),
        tokens=_TOKENS,
        shapes=(_change_footer, _change_footer, _change_pages),
        share=10,
    ),
    Target(
        name="history",
        about="files of the archived timeline of versions 8 and 9",
        seeds=_history_seeds,
        check=_check_history,
        allowed=(FormatError, UnsupportedTableError),
        path=_FOLDER,
        tokens=_TOKENS,
        shapes=(_change_footer, _change_pages),
        share=4,
    ),
    Target(
        name="partition",
        about="partition metadata files, as text and as Parquet",
        seeds=_partition_seeds,
        check=_check_partition,
        path="p/",
        tokens=(*_TOKENS, b"partitionDepth=", b"commitTime", b"\\u12"),
        shapes=(_change_footer,),
        share=3,
    ),
)
