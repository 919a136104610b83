"""Damaged log files through a whole scan: what is told, and where errors point."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import pytest

from lakewright.errors import FormatError
from lakewright.format.log_block import BlockType, LogBlock, read_blocks
from lakewright.runtime.events import Event
from lakewright.table import Table
from tests.corpus import committed_tables


@dataclass(frozen=True)
class Log:
    """A log that the newest snapshot of an unpacked table reads."""

    table: Path
    path: str

    @property
    def file(self) -> Path:
        return self.table / self.path

    def blocks(self) -> list[LogBlock]:
        return read_blocks(self.file.read_bytes(), path=self.path)

    def scan(self) -> tuple[int, list[Event]]:
        told: list[Event] = []
        rows = Table.open(str(self.table), on_event=told.append).scan().count()
        return rows, [event for event in told if event.kind == "scan.corrupt_block"]


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """A log with Avro rows in its last block."""
    for committed in committed_tables():
        if committed.type != "mor":
            continue
        table = committed.unpack(tmp_path / committed.name)
        for task in Table.open(str(table)).scan().plan().tasks:
            for stored in task.slice_.logs:
                found = Log(table, stored.path)
                if found.blocks()[-1].type is BlockType.AVRO_DATA:
                    return found
    raise AssertionError("no committed table has such a log")


def test_a_torn_block_is_skipped_and_told(log: Log) -> None:
    _, sound = log.scan()
    assert sound == []
    last = log.blocks()[-1]
    log.file.write_bytes(log.file.read_bytes()[:-9])
    _, told = log.scan()
    assert [(e.path, e.offset, e.done, e.unit) for e in told] == [
        (log.path, last.offset, last.length - 9, "bytes")
    ]


def test_a_damaged_record_is_an_error_that_points_into_the_log(log: Log) -> None:
    last = log.blocks()[-1]
    data = bytearray(log.file.read_bytes())
    first = last.content_offset + 8 + 4  # behind version, count and the first record's length
    data[first : first + 10] = b"\xff" * 10
    log.file.write_bytes(bytes(data))
    with pytest.raises(FormatError) as caught:
        log.scan()
    assert str(caught.value.context["path"]).endswith(log.path)
    assert first <= int(str(caught.value.context["offset"])) < last.offset + last.length


def test_a_damaged_schema_is_an_error_with_the_place_of_its_block(log: Log) -> None:
    last = log.blocks()[-1]
    data = log.file.read_bytes()
    at = data.index(b'"type"', last.offset)
    log.file.write_bytes(data[:at] + b'"tipe"' + data[at + 6 :])
    with pytest.raises(FormatError) as caught:
        log.scan()
    assert caught.value.context["offset"] == last.offset
    with pytest.raises(FormatError):
        Table.open(str(log.table)).inspect.log_records(log.path)


def test_frames_keep_their_length(log: Log) -> None:
    """The offsets above follow from the layout of a block."""
    last = log.blocks()[-1]
    data = log.file.read_bytes()
    version, count = struct.unpack_from(">ii", data, last.content_offset)
    assert version == 3 and count > 0
