"""HFiles, and the records of the metadata table inside of them.

An HFile that reads must give the cells that a second, plain reader finds (`hfile_model`), and agree
with itself: a look-up of every key and a prefix scan give what reading everything gave. Where its
data blocks are compressed and summed, no cell may come out that was in none of the files that the
mutant was made of: damage cannot invent one. Files of Hudi's own writer have no sums; their values
may be others, in the same cells. What reads can also be written: an HFile of the same cells, and
records merged into a base file.
"""

from __future__ import annotations

import re
import struct
from functools import lru_cache
from random import Random
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakewright.codec.crc32c import crc32c_chunks
from lakewright.codec.hfile import HFile, encode_hfile
from lakewright.codec.hfile.cells import starting_with
from lakewright.errors import UnsupportedTableError
from lakewright.format.log_block import BlockType, read_blocks
from lakewright.format.version import TableVersion
from lakewright.metadata.bloom_index import bloom_filters
from lakewright.metadata.file_groups import RECORD_INDEX, IndexGroups
from lakewright.metadata.files import file_table, listed_partitions
from lakewright.metadata.merging import merged_records
from lakewright.metadata.record_index import record_locations, secondary_keys
from lakewright.metadata.record_schema import written_schema
from lakewright.metadata.records import Everything, FileGroupReader, Keys, Part, Selection
from lakewright.metadata.statistics import aligned_ranges, column_statistics
from lakewright.testing.fuzz.corpus import Corpus, Seed
from lakewright.testing.fuzz.hfile_model import UnreadableError, model_cells
from lakewright.testing.fuzz.json_shapes import change_json_line
from lakewright.testing.fuzz.judging import PATH, Case, Target, demand, demand_sound
from lakewright.testing.fuzz.made_metadata import index_records, written_hfiles
from lakewright.testing.fuzz.mutators import mutate_plainly

__all__ = ["TARGETS", "check_cells"]

_DATA_MAGIC: Final = b"DATABLK*"
_MAGICS: Final = (
    _DATA_MAGIC,
    b"IDXLEAF2",
    b"IDXINTE2",
    b"IDXROOT2",
    b"METABLKc",
    b"FILEINF2",
)
_CRC32C: Final = 2
_GZIP: Final = b"\x1f\x8b\x08"
_TRAILER: Final = 4096
_INDEX: Final = re.compile(
    r"\b(files|column_stats|partition_stats|bloom_filters|record_index|secondary_index_\w+)\b"
)


def _hfile_seeds(corpus: Corpus) -> list[Seed]:
    made = [Seed(f"made:{name}", data) for name, data in written_hfiles().items()]
    return [*made, *corpus.matching(r"\.hfile$", limit=40, bytes_max=16 << 10)]


def _check_hfile(case: Case) -> None:
    file = HFile(case.data, path=PATH)
    _ = file.file_info, file.entry_count, file.block_count
    file.meta_block("bloomFilter")
    keys, values = file.cells()
    for array in (keys, values):
        demand_sound(array)
    demand(len(keys) == len(values) == file.entry_count, "another number of cells")
    check_cells(case.data, keys, values)
    if file.block_count and _is_ascending(keys):
        distinct = len(keys.unique()) == len(keys)
        if distinct:
            _check_written(keys, values)
        demand(not distinct or file.lookup(keys).equals(values), "a look-up gave other values")
        for at in range(0, len(keys) if distinct else 0, 1 + len(keys) // 5):
            found = file.lookup(keys[at : at + 1])
            demand(found.equals(values[at : at + 1]), "a key that is there was not found")
        demand(file.lookup([b"\xff" * 300]).null_count == 1, "a look-up found what is not there")
        some = keys[len(keys) // 2].as_py()[:3] if len(keys) else b""
        found, _ = file.prefix(some)
        demand(found.equals(keys.filter(pa.array(starting_with(keys, [some])))), "a prefix scan")
    if _all_summed(case.data) and case.seed.data:
        unknown = {*zip(keys.to_pylist(), values.to_pylist(), strict=True)}
        for sound in (case.seed.data, *case.partners):
            if unknown:
                unknown -= _known_cells(sound)
        demand(not unknown, f"invented cells: {sorted(unknown)[:3]}")


def _check_written(keys: pa.BinaryArray, values: pa.BinaryArray) -> None:
    if len(keys) and pc.max(pc.binary_length(keys)).as_py() < 1 << 15:
        again = HFile(encode_hfile(keys, values), path=PATH).cells()
        demand(again == (keys, values), "written again, the cells are others")


def check_cells(data: bytes, keys: pa.BinaryArray, values: pa.BinaryArray) -> None:
    """Cells are those of a plain reader, in its order."""
    try:
        model = model_cells(data)
    except UnreadableError as error:
        demand(False, f"an HFile that the plain reader does not read: {error}")
        return
    ours = list(zip(keys.to_pylist(), values.to_pylist(), strict=True))
    demand(ours == model, "cells differ from the plain reader's")


def _is_ascending(keys: pa.BinaryArray) -> bool:
    return len(keys) < 2 or bool(pc.all(pc.less_equal(keys[:-1], keys[1:])).as_py())


def _all_summed(data: bytes) -> bool:
    """Whether every data block has the checksums of the newest kind, and gzip's own.

    A mutant may be summed again (`_sum_again`); then only gzip notices what was changed.
    """
    at = data.find(_DATA_MAGIC)
    kinds = []
    while 0 <= at < len(data) - 33:
        kinds.append((data[at + 24], data[at + 33 : at + 36]))
        at = data.find(_DATA_MAGIC, at + 1)
    return set(kinds) == {(_CRC32C, _GZIP)} and data.count(b"TRABLK") == 1


@lru_cache(maxsize=64)
def _known_cells(data: bytes) -> frozenset[tuple[bytes, bytes]]:
    keys, values = HFile(data, path=PATH).cells()
    return frozenset(zip(keys.to_pylist(), values.to_pylist(), strict=True))


def _change_unsummed(data: bytes, random: Random) -> bytes:
    """Damage in one block that says it has no checksums, so that what lies behind is reached."""
    places = [at for magic in _MAGICS for at in _occurrences(data, magic)]
    if not places:
        return data
    at = random.choice(places)
    if at + 33 > len(data):
        return data
    size = min(33 + max(struct.unpack_from(">i", data, at + 8)[0], 0), len(data) - at)
    inside = mutate_plainly(data[at + 33 : at + size], random)[: size - 33]
    header = data[at : at + 24] + b"\x00" + data[at + 25 : at + 33]
    return data[:at] + header + inside.ljust(size - 33, b"\x00") + data[at + size :]


def _occurrences(data: bytes, token: bytes) -> list[int]:
    found, at = [], data.find(token)
    while at >= 0:
        found.append(at)
        at = data.find(token, at + 1)
    return found


def _sum_again(data: bytes, random: Random) -> bytes:
    """Damage anywhere in a summed block, and a checksum that matches it."""
    places = [at for at in _occurrences(data, _DATA_MAGIC) if at + 33 <= len(data)]
    if not places:
        return data
    at = random.choice(places)
    without, _, _, kind, chunk, stored = struct.unpack_from(">iiqbii", data, at + 8)
    size = 33 + without
    if kind != _CRC32C or chunk <= 0 or not 33 < stored < size <= len(data) - at:
        return data
    changed = bytearray(data[at : at + size])
    changed[random.randrange(33, stored)] ^= 1 << random.randrange(8)
    starts = np.arange(0, stored, chunk, dtype=np.int64)
    lengths = np.minimum(chunk, stored - starts)
    sums = crc32c_chunks(np.frombuffer(bytes(changed), np.uint8), starts, lengths)
    told = sums.astype(">u4").tobytes()
    if stored + len(told) != size:
        return data
    return data[:at] + bytes(changed[:stored]) + told + data[at + size :]


def _change_trailer(data: bytes, random: Random) -> bytes:
    """Damage in the message of the trailer, with its length set right."""
    start = len(data) - _TRAILER
    if start < 0:
        return data
    length, at = 0, start + 8
    for shift in (0, 7):
        length |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            break
    message = mutate_plainly(data[at : at + length], random)[:1000]
    size = bytes([len(message) & 0x7F | 0x80, len(message) >> 7])
    head = data[start : start + 8] + size + message
    return data[:start] + head.ljust(_TRAILER - 4, b"\x00") + data[-4:]


# ---- records of the metadata table --------------------------------------------------------------


class _Cells(FileGroupReader):
    """A file group that was opened already: its cells, deletes of none."""

    def __init__(self, schema: str, keys: pa.BinaryArray, values: pa.BinaryArray) -> None:
        self._part = Part(keys, values, schema, PATH)

    @property
    def path(self) -> str:
        """The file that errors must name."""
        return PATH

    def first_keys(self) -> list[bytes]:
        """None: there is but one file group, so all keys belong into it."""
        return []

    def read(self, selection: Selection) -> list[Part]:
        """As the reader of a stored file group does it."""
        part = self._part
        values = part.values
        assert values is not None
        match selection:
            case Everything():
                return [part]
            case Keys(wanted):
                mask = pc.is_in(part.keys, value_set=wanted)
            case _:
                mask = pa.array(starting_with(part.keys, selection.prefixes))
        kept = Part(part.keys.filter(mask), values.filter(mask), part.schema, PATH)
        return [kept] if len(kept.keys) else []


def pack_cells(schema: bytes, cells: list[tuple[bytes, bytes]]) -> bytes:
    """Schema text, a line end, and the cells with lengths in front."""
    parts = [schema, b"\n"]
    for key, value in cells:
        parts += (struct.pack(">HI", len(key), len(value)), key, value)
    return b"".join(parts)


def _unpack_cells(data: bytes) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    schema, _, rest = data.partition(b"\n")
    cells, at = [], 0
    while at + 6 <= len(rest):
        key_size, value_size = struct.unpack_from(">HI", rest, at)
        at += 6
        key, at = rest[at : at + key_size], at + key_size
        value, at = rest[at : at + value_size], at + value_size
        cells.append((key, value))
    return schema, cells


def _record_seeds(corpus: Corpus) -> list[Seed]:
    seeds = []
    for seed in corpus.matching(r"/metadata/.*\.hfile$", limit=40, bytes_max=24 << 10):
        schema = HFile(seed.data, path=seed.name).file_info.get("schema", b"")
        seeds.append(_packed_seed(seed.name, schema, seed.data))
    for seed in corpus.matching(r"/metadata/.*\.log\.\d+_", limit=40, bytes_max=24 << 10):
        seeds += [
            _packed_seed(seed.name, block.schema.encode(), bytes(block.content))
            for block in read_blocks(seed.data, path=seed.name)
            if block.type is BlockType.HFILE_DATA
        ]
    made = [
        Seed(f"made:{index}#cells", pack_cells(schema.encode(), cells))
        for index, (schema, cells) in index_records().items()
    ]
    return [*made, *(seed for seed in seeds if seed is not None)]


def _packed_seed(name: str, schema: bytes, data: bytes) -> Seed | None:
    """The first cells of an HFile; None if it has none."""
    keys, values = (a.to_pylist() for a in HFile(data, path=name).cells())
    cells = list(zip(keys, values, strict=True))[:12]
    return Seed(f"{name}#cells", pack_cells(schema, cells)) if cells and schema else None


_COLUMNS: Final = pa.schema(
    [
        ("_hoodie_record_key", pa.string()),
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("name", pa.string()),
        ("fare", pa.float64()),
        ("price", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)


def _check_records(case: Case) -> None:
    schema, cells = _unpack_cells(case.data)
    keys = pa.array([k for k, _ in cells], pa.binary())
    values = pa.array([v for _, v in cells], pa.binary())
    reader = _Cells(schema.decode("utf-8", "replace"), keys, values)
    place = case.seed.name
    if "files" in place:
        partitions = listed_partitions(reader)
        demand_sound(file_table(reader, partitions))
    elif "stats" in place:
        _check_statistics(reader, keys)
    elif "bloom" in place:
        bloom_filters([reader], "", ["name.parquet"])
    elif "secondary" in place:
        texts = [k.split(b"$")[0].decode("utf-8", "replace") for k, _ in cells]
        demand_sound(secondary_keys([reader], texts, by_value=False))
    else:
        texts = [k.decode("utf-8", "replace") for k, _ in cells]
        layout = IndexGroups.whole(RECORD_INDEX, 1)
        demand_sound(record_locations([reader], layout, pa.array(texts, pa.string())))
    _check_merged(place, reader)


def _check_merged(place: str, reader: FileGroupReader) -> None:
    """Records merged into one per key are merged: once more, they stay as they are."""
    found = _INDEX.search(place)
    if found is None:
        return
    version = TableVersion.of(8)
    try:
        once = merged_records(found[0], reader.read(Everything()), version=version)
    except UnsupportedTableError:
        return  # of a newer index version
    part = Part(once.keys, once.values, written_schema(version), PATH)
    again = merged_records(found[0], [part] if len(once) else [], version=version)
    for column in (once.keys, once.values):
        demand_sound(column)
    demand(again == once, "records merged again are others")


def _check_statistics(reader: FileGroupReader, keys: pa.BinaryArray) -> None:
    tables: dict[str, Any] = column_statistics(
        [reader], _COLUMNS, ["", "city=sf", "san_francisco"], all_partitions=True
    )
    for table in tables.values():
        demand_sound(table)
        demand(table.num_rows <= len(keys), "more statistics than records")
    aligned_ranges(tables)


def _change_cell(data: bytes, random: Random) -> bytes:
    schema, cells = _unpack_cells(data)
    if not cells:
        return data
    number = random.randrange(len(cells))
    key, value = cells[number]
    if random.random() < 0.2:
        key = mutate_plainly(key, random)[:60_000]
    else:
        value = mutate_plainly(value, random)
    cells[number] = key, value
    return pack_cells(schema, cells)


TARGETS: Final = (
    Target(
        name="hfile",
        about="HFiles: trailer, indexes, cells, look-ups",
        seeds=_hfile_seeds,
        check=_check_hfile,
        tokens=(*_MAGICS, b'TRABLK"$', b"PBUF", _GZIP),
        shapes=(_change_unsummed, _change_unsummed, _change_trailer, _sum_again),
        share=8,
    ),
    Target(
        name="metadata",
        about="records of the metadata table: files, statistics, indexes",
        seeds=_record_seeds,
        check=_check_records,
        tokens=(b"\x02", b"\x00", b'"null"', b'"string"', b'"long"'),
        shapes=(_change_cell, _change_cell, change_json_line),
        share=6,
    ),
)
