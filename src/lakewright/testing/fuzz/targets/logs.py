"""Log files: framing, block selection, and the rows of every kind of block.

Held against a second reader of the framing (`log_model`): the same regions are blocks, the same
are corrupt and reported as such, and exactly the illegal files are refused. So a block before the
damage is always found; and a block whose bytes the damage left alone gives the rows it gave before.
Rows of changed Avro and delete blocks must be what fastavro reads from the same bytes, cells of
changed HFile blocks those of a plain reader (`hfile_model`). Blocks have no checksums: where a
changed content still is a content, its other values are taken.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from random import Random
from typing import Any, Final

import pyarrow as pa

from lakewright.codec.hfile import HFile
from lakewright.codec.parquet import read_columns
from lakewright.errors import FormatError, UnsupportedTableError
from lakewright.format.block_rows import avro_rows, open_parquet_block, placed, record_schema
from lakewright.format.log_block import MAGIC, BlockType, HeaderKey, LogBlock, read_blocks
from lakewright.format.log_content import (
    DeleteRows,
    avro_frames,
    block_runs,
    delete_rows,
    record_positions,
)
from lakewright.format.log_scan import select_blocks
from lakewright.testing.fuzz.avro_model import (
    UndecodableError,
    UnknownSchemaError,
    model_records,
    plain_rows,
    same,
)
from lakewright.testing.fuzz.corpus import Corpus, Seed
from lakewright.testing.fuzz.json_shapes import change_json
from lakewright.testing.fuzz.judging import (
    PATH,
    Case,
    Kind,
    Target,
    demand,
    same_values,
)
from lakewright.testing.fuzz.log_model import ModelBlock, ModelFile, model_log_file
from lakewright.testing.fuzz.made import log_files
from lakewright.testing.fuzz.mutators import mutate_plainly
from lakewright.testing.fuzz.targets.deletes import check_delete_rows
from lakewright.testing.fuzz.targets.hfiles import check_cells

__all__ = ["TARGETS"]

_LOG_NAME: Final = r"\.log\.\d+_[^/]*$"
_WITH_RECORDS: Final = (BlockType.AVRO_DATA, BlockType.CDC_DATA)


def _seeds(corpus: Corpus) -> list[Seed]:
    made = [Seed(f"made:log-{name}", data) for name, data in log_files().items()]
    data_logs = corpus.matching(r"^(?!.*/\.hoodie/).*" + _LOG_NAME, limit=24, bytes_max=8 << 10)
    metadata_logs = corpus.matching(r"/\.hoodie/.*" + _LOG_NAME, limit=8, bytes_max=14 << 10)
    return [*made, *data_logs, *metadata_logs]


def _check(case: Case) -> Kind:
    model = model_log_file(case.data)
    try:
        blocks = read_blocks(case.data, path=PATH)
    except (FormatError, UnsupportedTableError):
        demand(model.illegal is not None, "a legal file was refused")
        raise
    demand(model.illegal is None, f"an illegal file was read: {model.illegal}")
    _compare_regions(blocks, model.blocks)
    selection = select_blocks(blocks, is_visible=None, latest=None)
    corrupt = [b for b in blocks if b.type is BlockType.CORRUPT]
    demand(selection.corrupt == corrupt, "a corrupt region was not reported")
    _check_selections(blocks)
    known = _known_rows(case.seed.name, case.seed.data)
    for block in selection.blocks:
        _check_rows(case, block, known)
    if case.spot:
        _check_runs(selection.blocks)
    return region_ending(model, len(case.data))


def region_ending(model: ModelFile, size: int) -> Kind:
    """How a file that was not refused has been read, by what a plain reader finds in it."""
    corrupt = [block for block in model.blocks if block.content is None]
    end = model.blocks[-1].end if model.blocks else 0
    if not corrupt:
        return Kind.WHOLE if end == size else Kind.PREFIX
    torn = len(corrupt) == 1 and corrupt[0] is model.blocks[-1]
    return Kind.PREFIX if torn else Kind.SKIPPED


def _compare_regions(blocks: list[LogBlock], model: list[ModelBlock]) -> None:
    demand(
        [(b.offset, b.length, int(b.type)) for b in blocks]
        == [(m.offset, m.end - m.offset, m.type) for m in model],
        "regions differ from the model's",
    )
    for block, told in zip(blocks, model, strict=True):
        if told.content is not None:
            headers = {int(k): v.encode() for k, v in block.headers.items()}
            demand(headers == told.headers, "headers differ from the model's")
            demand(bytes(block.content) == told.content, "a content differs from the model's")


def _check_selections(blocks: list[LogBlock]) -> None:
    """What is not visible or too new is left out, and nothing else appears."""
    times = sorted({b.instant or "" for b in blocks if b.type is not BlockType.CORRUPT})
    if not times:
        return
    middle = times[len(times) // 2]
    for chosen in (
        select_blocks(blocks, is_visible=None, latest=middle),
        select_blocks(blocks, is_visible=lambda t: t <= middle, latest=None),
        select_blocks(blocks, is_visible=None, latest=None, instants=frozenset(times[::2])),
    ):
        demand(all(b in blocks for b in chosen.blocks), "a block from nowhere")
        demand(all((b.instant or "") in times for b in chosen.blocks), "an instant from nowhere")
    demand(
        all(
            (b.instant or "") <= middle
            for b in select_blocks(blocks, is_visible=None, latest=middle).blocks
        ),
        "a block of a later instant",
    )


def _check_rows(case: Case, block: LogBlock, known: dict[bytes, Any]) -> None:
    raw = case.data[block.offset : block.offset + block.length]
    if raw in known:
        try:
            rows = block_rows(block)
        except FormatError as error:
            demand(False, f"an undamaged block was refused: {error.message}")
            raise
        demand(_equal(rows, known[raw]), "an undamaged block gave other rows")
        return
    rows = block_rows(block)
    if case.spot and block.type in _WITH_RECORDS:
        _hold_against_fastavro(block, rows)
    elif case.spot and block.type is BlockType.DELETE:
        check_delete_rows(block, rows)
    elif block.type is BlockType.HFILE_DATA:
        check_cells(bytes(block.content), *rows)
    elif block.type is BlockType.PARQUET_DATA:
        rows[0].validate()  # text as it is stored, UTF-8 or not: see docs/fuzzing.md


def block_rows(block: LogBlock) -> Any:
    """The rows of one block, as the reader of its type gives them."""
    if block.type in _WITH_RECORDS:
        positions = record_positions(block)
        batch = avro_rows([block])
        return (batch, None if positions is None else positions.positions.tolist())
    if block.type is BlockType.PARQUET_DATA:
        file = open_parquet_block(block)
        with placed(block):
            return (read_columns(file, path=block.path), None)
    if block.type is BlockType.HFILE_DATA:
        return HFile(block.content, path=block.path, base_offset=block.content_offset).cells()
    return delete_rows(block)


def _equal(rows: Any, known: Any) -> bool:
    if isinstance(rows, DeleteRows):
        return same_values(rows.keys, known.keys) and same_values(rows.partitions, known.partitions)
    first, second = rows
    if isinstance(second, pa.Array):
        return same_values(first, known[0]) and same_values(second, known[1])
    return same_values(first, known[0]) and second == known[1]


@lru_cache(maxsize=256)
def _known_rows(name: str, data: bytes) -> dict[bytes, Any]:
    """Rows of every block of an undamaged file, by the block's bytes."""
    del name
    blocks = [b for b in read_blocks(data, path=PATH) if b.type is not BlockType.CORRUPT]
    return {
        data[b.offset : b.offset + b.length]: block_rows(b)
        for b in blocks
        if b.type is not BlockType.COMMAND
    }


def _hold_against_fastavro(block: LogBlock, rows: Any) -> None:
    starts, ends = avro_frames(block)
    bodies = [
        bytes(block.content[a:b]) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
    try:
        model = model_records(block.schema, bodies)
    except UndecodableError as error:
        demand(False, f"rows that fastavro does not read: {error}")
        return
    except UnknownSchemaError:
        return
    ours = plain_rows(rows[0], record_schema(block))
    demand(same(ours, model), "rows differ from fastavro's")


def _check_runs(blocks: list[LogBlock]) -> None:
    """Blocks that are decoded together give the rows they give alone."""
    for run in block_runs([b for b in blocks if b.type in _WITH_RECORDS]):
        alone = pa.Table.from_batches([avro_rows([b]) for b in run])
        try:
            together = pa.Table.from_batches([avro_rows(run)])
        except FormatError as error:
            demand(False, f"blocks that decode alone do not decode together: {error.message}")
            raise
        demand(same_values(alone.combine_chunks(), together), "a run gave other rows")


# ---- changes that keep the frames whole --------------------------------------------------------


def framed(kind: int, headers: dict[int, bytes], content: bytes) -> bytes:
    """A block with sizes that fit, whatever is in it."""
    body = struct.pack(">iii", 1, kind, len(headers))
    for key, text in headers.items():
        body += struct.pack(">ii", key, len(text)) + text
    body += struct.pack(">q", len(content)) + content + struct.pack(">i", 0)
    size = len(body) + 8
    return MAGIC + struct.pack(">q", size) + body + struct.pack(">q", size + 6)


def _with_block(
    data: bytes, random: Random, change: Callable[[ModelBlock, Random], bytes]
) -> bytes:
    """The file with one sound block changed by `change(block, random)` and framed again."""
    sound = [b for b in model_log_file(data).blocks if b.content is not None]
    if not sound:
        return data
    block = random.choice(sound)
    return data[: block.offset] + change(block, random) + data[block.end :]


def _change_content(data: bytes, random: Random) -> bytes:
    def change(block: ModelBlock, random: Random) -> bytes:
        return framed(block.type, block.headers, mutate_plainly(block.content or b"", random))

    return _with_block(data, random, change)


def _change_header(data: bytes, random: Random) -> bytes:
    def change(block: ModelBlock, random: Random) -> bytes:
        headers = dict(block.headers)
        key = random.choice([*headers, random.randrange(11)])
        choice = random.random()
        if choice < 0.2:
            headers.pop(key, None)
        elif choice < 0.6 and HeaderKey.SCHEMA in headers:
            headers[HeaderKey.SCHEMA] = change_json(headers[HeaderKey.SCHEMA], random)
        else:
            headers[key] = mutate_plainly(headers.get(key, b"1"), random)
        return framed(block.type, headers, block.content or b"")

    return _with_block(data, random, change)


def _change_type(data: bytes, random: Random) -> bytes:
    def change(block: ModelBlock, random: Random) -> bytes:
        return framed(random.randrange(8), block.headers, block.content or b"")

    return _with_block(data, random, change)


def _change_record(data: bytes, random: Random) -> bytes:
    """Damage inside one record, with the length in front of it set right."""

    def change(block: ModelBlock, random: Random) -> bytes:
        head, records = split_records(block.content or b"")
        if records:
            number = random.randrange(len(records))
            records[number] = mutate_plainly(records[number], random)
        if random.random() < 0.1:
            records = records[: random.randrange(len(records) + 1)]
        head = head[:4] + struct.pack(">i", len(records))
        content = head + b"".join(struct.pack(">I", len(r)) + r for r in records)
        return framed(block.type, block.headers, content)

    return _with_block(data, random, change)


def split_records(content: bytes) -> tuple[bytes, list[bytes]]:
    """The head of an Avro content, and its records as far as their lengths fit."""
    records, at = [], 8
    while at + 4 <= len(content):
        (length,) = struct.unpack_from(">I", content, at)
        if at + 4 + length > len(content):
            break
        records.append(content[at + 4 : at + 4 + length])
        at += 4 + length
    return content[:8].ljust(8, b"\x00"), records


def _rearrange(data: bytes, random: Random) -> bytes:
    """Blocks repeated, dropped or in another order."""
    parts = [data[b.offset : b.end] for b in model_log_file(data).blocks]
    if not parts:
        return data
    number = random.randrange(len(parts))
    match random.randrange(3):
        case 0:
            parts.insert(random.randrange(len(parts) + 1), parts[number])
        case 1:
            parts.pop(number)
        case _:
            random.shuffle(parts)
    return b"".join(parts)


SHAPES: Final = (
    _change_content,
    _change_content,
    _change_record,
    _change_record,
    _change_header,
    _change_type,
    _rearrange,
)

TARGETS: Final = (
    Target(
        name="log",
        about="log files: blocks, selection, rows of every block type",
        seeds=_seeds,
        check=_check,
        allowed=(FormatError, UnsupportedTableError),
        tokens=(MAGIC, b"\x00\x00\x00\x00\x00\x00\x00\x01", b"\x00\x00\x00\x03", b"PAR1", b"null"),
        shapes=SHAPES,
        share=16,
    ),
)
