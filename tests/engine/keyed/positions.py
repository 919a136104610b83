"""Record positions in log blocks: whether they point to the rows that the log changes."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pyarrow.parquet as pq

from lakewright.codec.parquet import read_columns
from lakewright.format.block_rows import avro_rows, open_parquet_block
from lakewright.format.file_names import BaseFileName, LogFileName, parse_data_file
from lakewright.format.log_block import BlockType, LogBlock, read_blocks
from lakewright.format.log_content import delete_rows, record_positions
from tests.engine.keyed.tables import QuickTable


def misplaced_rows(table: QuickTable, instant: str) -> list[tuple[str, list[Any], list[Any]]]:
    """Blocks of a commit whose positions name other rows: path, keys, keys at the positions."""
    wrong = []
    for path in log_files(table, instant):
        for block in read_blocks(table.storage.read(path), path=path):
            told = record_positions(block)
            if told is None:
                continue
            there = base_ids(table, path, told.base_instant or "")
            pointed = [there[at] for at in told.positions]
            if pointed != block_ids(block):
                wrong.append((path, block_ids(block), pointed))
    return wrong


def log_files(table: QuickTable, instant: str) -> list[str]:
    """The log files that a commit names."""
    paths = [stat.path or "" for stat in table.metadata(instant).write_stats]
    return [p for p in paths if isinstance(parse_data_file(p.rpartition("/")[2]), LogFileName)]


def block_ids(block: LogBlock) -> list[Any]:
    """The column `id` of the rows of a block, or the keys of its deletes."""
    if block.type is BlockType.DELETE:
        return list(delete_rows(block).keys.to_pylist())
    if block.type is BlockType.PARQUET_DATA:
        found = read_columns(open_parquet_block(block), path=block.path)
    else:
        found = avro_rows([block])
    return list(found.column("id").to_pylist())


def base_ids(table: QuickTable, log: str, instant: str) -> list[Any]:
    """The column `id` of the base file of a log's file group with an instant."""
    partition, _, name = log.rpartition("/")
    parsed = parse_data_file(name)
    assert isinstance(parsed, LogFileName)
    for info in table.storage.list(partition):
        base = parse_data_file(info.path.rpartition("/")[2])
        if isinstance(base, BaseFileName) and (base.file_id, base.instant) == (
            parsed.file_id,
            instant,
        ):
            data = BytesIO(table.storage.read(info.path))
            return list(pq.read_table(data, columns=["id"])["id"].to_pylist())
    raise AssertionError(f"{log} tells of a base file that is not there")
