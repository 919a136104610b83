"""Files of the metadata table from records: log blocks that hold an HFile, and base files.

Records come sorted by key and once each. A delta commit has one data block per file group, and one
block of deleted keys where keys go. Base files carry the schema and their key bounds as Hudi's do;
the bloom filter that Hudi adds to them is asked by nobody and is written only on request.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from lakewright.codec.bloom import BloomBuilder
from lakewright.codec.hfile import HFilePolicy, HFileSummary, HFileWriter, encode_hfile
from lakewright.codec.hfile.writer import Sink
from lakewright.format.log_block import BlockType, HeaderKey, encode_block
from lakewright.format.log_writing import BlockWriter
from lakewright.format.version import TableVersion
from lakewright.metadata.encoding import MetadataRecords
from lakewright.metadata.record_schema import written_schema

__all__ = ["BaseFileWriter", "GroupLog", "data_block", "delete_block", "log_blocks"]

_SCHEMA: Final = "schema"
_BLOOM: Final = "bloomFilter"
_BLOOM_KIND: Final = "bloomFilterTypeCode"
_LEAST, _GREATEST = "minRecordKey", "maxRecordKey"


@dataclass(frozen=True, slots=True)
class GroupLog:
    """What a delta commit adds to one file group: a log file that has no name yet."""

    index: str
    file_id: str
    content: bytes
    records: int
    deletes: int = 0
    """Keys that it deletes."""


def data_block(
    records: MetadataRecords,
    *,
    instant: str,
    version: TableVersion,
    policy: HFilePolicy | None = None,
) -> bytes:
    """A log block of records."""
    schema = written_schema(version)
    headers = {HeaderKey.INSTANT_TIME: instant, HeaderKey.SCHEMA: schema}
    info = {_SCHEMA: schema.encode()}
    content = encode_hfile(records.keys, records.values, info=info, policy=policy)
    return encode_block(BlockType.HFILE_DATA, headers, content)


def delete_block(keys: pa.BinaryArray, *, index: str, instant: str, version: TableVersion) -> bytes:
    """A log block that deletes keys of an index."""
    places = pa.repeat(pa.scalar(index, pa.string()), len(keys))
    writer = BlockWriter(instant, written_schema(version), version)
    return writer.deletes(keys.cast(pa.string()), places, None)


def log_blocks(
    records: MetadataRecords,
    deleted: pa.BinaryArray,
    *,
    index: str,
    instant: str,
    version: TableVersion,
    policy: HFilePolicy | None = None,
) -> Iterator[bytes]:
    """The blocks of one delta commit in one file group: its records, then its deleted keys.

    No key may be in both: a reader takes the later block.
    """
    if len(records):
        yield data_block(records, instant=instant, version=version, policy=policy)
    if len(deleted):
        yield delete_block(deleted, index=index, instant=instant, version=version)


class BaseFileWriter:
    """Writes one base file: `write` records in key order, then `close`."""

    def __init__(
        self,
        sink: Sink,
        *,
        version: TableVersion,
        policy: HFilePolicy | None = None,
        bloom: BloomBuilder | None = None,
    ) -> None:
        self._file = HFileWriter(sink, policy)
        self._schema = written_schema(version)
        self._bloom = bloom

    @property
    def size(self) -> int:
        """Bytes that were given to the sink."""
        return self._file.size

    def write(self, records: MetadataRecords) -> None:
        """Append records."""
        self._file.write(records.keys, records.values)
        if self._bloom is not None:
            self._bloom.add(records.keys)

    def close(self) -> HFileSummary:
        """Finish the file."""
        info = {
            _SCHEMA: self._schema.encode(),
            _LEAST: self._file.first_key or b"",
            _GREATEST: self._file.last_key or b"",
        }
        meta = {}
        if self._bloom is not None:
            found = self._bloom.finish()
            info[_BLOOM_KIND] = found.kind.encode()
            meta[_BLOOM] = found.encode().encode()
        return self._file.close(info=info, meta=meta)
