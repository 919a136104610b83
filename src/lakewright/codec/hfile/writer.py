"""HFile writer: columns of sorted keys and values as a file that every reader of Hudi accepts.

HBase's reader (Hudi 0.15), Hudi's own (1.x) and Rust's read what is written: whole cell keys, one
index level, gzip or nothing, CRC32C, and blocks small enough that Hudi 1.0 loses no cell - it takes
four bytes per 16 KiB at a block's end for checksums that are not there, so below six chunks no cell
begins in what it misses. Keys are unique and ascend by their bytes, over all calls.

Cells are put together as columns; per key nothing is made. Memory is bounded by a few MiB, by the
batch that is given and by one index entry per block. What can go wrong: keys out of order, nulls,
or a key longer than HBase can hold are a `FormatError` before anything of the batch is written; a
failing sink raises what it raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from itertools import pairwise
from typing import Any, Final, Literal, Protocol

import numpy as np
import pyarrow.compute as pc

from lakewright.codec.hfile.block_writing import NO_BLOCK, EncodedBlocks, encode_blocks
from lakewright.codec.hfile.blocks import HEADER_SIZE
from lakewright.codec.hfile.cell_writing import CellBatch, Int64s, misfit, no_cells
from lakewright.codec.hfile.layout import (
    CODEC_GZ,
    CODEC_NONE,
    DATA_MAGIC,
    FILE_INFO_MAGIC,
    META_MAGIC,
    ROOT_MAGIC,
    TRAILER_SIZE,
)
from lakewright.codec.hfile.layout_writing import (
    IndexEntry,
    TrailerFields,
    cell_key,
    encode_file_info,
    encode_root_index,
    encode_trailer,
)
from lakewright.errors import OptionError

__all__ = ["HFilePolicy", "HFileSummary", "HFileWriter", "encode_hfile", "first_key"]

BLOCK_BYTES_MAX: Final = 80_000
"""Five chunks of 16 KiB, header and checksums included."""
KEY_BYTES_MAX: Final = 32_767
COMPARATOR: Final = "org.apache.hudi.io.storage.HoodieHBaseKVComparator"
"""A class that HBase's reader loads; it is in every bundle of Hudi that has that reader."""

_CODECS: Final = {"gz": CODEC_GZ, "none": CODEC_NONE}


class Sink(Protocol):
    """Where the bytes go."""

    def write(self, data: bytes, /) -> object:
        """Take all of the bytes."""
        ...


def first_key(before: bytes, first: bytes) -> bytes:  # noqa: ARG001
    """The index key of a block: its first cell's. HBase shortens it by the last row before."""
    return cell_key(first)


@dataclass(frozen=True, slots=True)
class HFilePolicy:
    """How files are encoded."""

    codec: Literal["gz", "none"] = "gz"
    level: int = 1
    """Of gzip. Java takes 6: a tenth smaller for twice the time."""
    block_bytes: int = 65_536
    """Bytes of cells in a block; a cell that is larger has a block of its own."""
    comparator: str = COMPARATOR
    index_key: Callable[[bytes, bytes], bytes] = first_key
    """Key of a block in the index, from the last row before the block and its first."""

    def __post_init__(self) -> None:
        if self.codec not in _CODECS or not 0 <= self.level <= 9:
            raise OptionError(
                f"HFiles cannot be written with codec {self.codec!r} at level {self.level}.",
                hint="Hudi's readers know gz (levels 0 to 9) and none.",
            )
        if not 0 < self.block_bytes <= BLOCK_BYTES_MAX:
            raise OptionError(
                f"Blocks of {self.block_bytes} bytes cannot be written into an HFile.",
                hint=f"Hudi 1.0 loses cells of blocks above {BLOCK_BYTES_MAX} bytes; take 65536.",
            )


@dataclass(frozen=True, slots=True)
class HFileSummary:
    """What was written."""

    entries: int
    size: int
    first_key: bytes | None
    last_key: bytes | None


class HFileWriter:
    """Writes one HFile: `write` batches in key order, then `close`."""

    def __init__(self, sink: Sink, policy: HFilePolicy | None = None) -> None:
        self._sink = sink
        self._policy = policy or HFilePolicy()
        self._at = 0
        self._raw_bytes = 0
        self._index: list[IndexEntry] = []
        self._pending = no_cells()
        self._indexed_row = b""
        self._entries = self._key_bytes = self._value_bytes = 0
        self.first_key: bytes | None = None
        self.last_key: bytes | None = None

    @property
    def size(self) -> int:
        """Bytes that were given to the sink."""
        return self._at

    def write(self, keys: Any, values: Any) -> None:
        """Append cells: columns of (large) strings or binaries, keys ascending and unique."""
        batch = CellBatch.of(keys, values)
        if not len(batch):
            return
        self._check(batch)
        if self.first_key is None:
            self.first_key = batch.row(0)
        self.last_key = batch.row(len(batch) - 1)
        self._entries += len(batch)
        for part in batch.parts():
            sizes = part.sizes()
            self._key_bytes += int(sizes[0].sum())
            self._value_bytes += int(sizes[1].sum())
            self._pending = self._blocks_of(self._pending.followed_by(part))

    def close(
        self, *, info: Mapping[str, bytes] | None = None, meta: Mapping[str, bytes] | None = None
    ) -> HFileSummary:
        """Write what is left: last cells, named meta blocks, indexes, file info and trailer."""
        if len(self._pending):
            self._emit(self._pending, np.array([len(self._pending)]))
        named = sorted((name.encode(), content) for name, content in (meta or {}).items())
        blocks = self._put(META_MAGIC, [content for _, content in named])
        names = [
            IndexEntry(offset, size, name)
            for offset, size, (name, _) in zip(blocks.offsets, blocks.sizes, named, strict=True)
        ]
        root = encode_root_index(self._index)
        counted = self._raw_bytes  # HBase does not count the root index
        (load_on_open,) = self._put(ROOT_MAGIC, [root]).offsets
        self._raw_bytes = counted
        self._put(ROOT_MAGIC, [encode_root_index(names)], previous=load_on_open)
        told = encode_file_info({**(info or {}), **self._own_info()})
        (file_info,) = self._put(FILE_INFO_MAGIC, [told]).offsets
        trailer = encode_trailer(
            TrailerFields(
                file_info_offset=file_info,
                load_on_open_offset=load_on_open,
                data_index_bytes=len(root),
                uncompressed_bytes=self._raw_bytes + TRAILER_SIZE,
                data_index_count=len(self._index),
                meta_index_count=len(names),
                entry_count=self._entries,
                first_data_block=self._index[0].offset if self._index else NO_BLOCK,
                last_data_block=self._index[-1].offset if self._index else NO_BLOCK,
                comparator=self._policy.comparator,
                codec=_CODECS[self._policy.codec],
            )
        )
        self._sink.write(trailer)
        self._at += len(trailer)
        return HFileSummary(self._entries, self._at, self.first_key, self.last_key)

    def _own_info(self) -> dict[str, bytes]:
        count = max(self._entries, 1)
        own = {
            "KEY_VALUE_VERSION": (1).to_bytes(4, "big"),
            "MAX_MEMSTORE_TS_KEY": bytes(8),
            "hfile.AVG_KEY_LEN": (self._key_bytes // count).to_bytes(4, "big"),
            "hfile.AVG_VALUE_LEN": (self._value_bytes // count).to_bytes(4, "big"),
            "hfile.CREATE_TIME_TS": bytes(8),
        }
        if self.last_key is not None:
            own["hfile.LASTKEY"] = cell_key(self.last_key)
        return own

    def _check(self, batch: CellBatch) -> None:
        if self.last_key is not None and batch.row(0) <= self.last_key:
            raise misfit("keys do not ascend, or one is there twice", key=batch.row(0))
        ascending = pc.less(batch.keys[:-1], batch.keys[1:])
        if not pc.all(ascending, min_count=0).as_py():
            place = int(np.argmin(np.asarray(ascending))) + 1
            raise misfit("keys do not ascend, or one is there twice", key=batch.row(place))
        longest = pc.max(pc.binary_length(batch.keys)).as_py()
        if longest > KEY_BYTES_MAX:
            raise misfit(f"a key has {longest} bytes, more than {KEY_BYTES_MAX}")

    def _blocks_of(self, batch: CellBatch) -> CellBatch:
        """Write all blocks that are full; the cells of the last one, which is not."""
        key, value = batch.sizes()
        ends = np.cumsum(key + value + 9)
        limit = self._policy.block_bytes
        cuts: list[int] = []
        first = begin = 0
        while True:  # one turn per block
            fitting = int(np.searchsorted(ends, begin + limit, side="right"))
            last = max(fitting, first + 1)
            if last >= len(ends):
                break
            cuts.append(last)
            first, begin = last, int(ends[last - 1])
        if cuts:
            self._emit(batch.slice(0, first), np.array(cuts))
        return batch.slice(first, len(batch))

    def _emit(self, batch: CellBatch, cuts: Int64s) -> None:
        """Write blocks that end behind so many cells each."""
        cells = batch.cells()
        _, offsets, data = cells.buffers()
        places = np.frombuffer(offsets, np.int64)[np.append(0, cuts)].tolist()
        view = memoryview(data)
        payloads = [view[a:b] for a, b in pairwise(places)]
        previous = self._index[-1].offset if self._index else NO_BLOCK
        blocks = self._put(DATA_MAGIC, payloads, previous=previous)
        firsts = [0, *cuts[:-1].tolist()]
        for number, first in enumerate(firsts):
            row = batch.row(first)
            before = batch.row(first - 1) if first else self._indexed_row
            key = self._policy.index_key(before, row) if self._index else cell_key(row)
            self._index.append(IndexEntry(blocks.offsets[number], blocks.sizes[number], key))
        self._indexed_row = batch.row(len(batch) - 1)

    def _put(self, magic: bytes, payloads: list[Any], *, previous: int = NO_BLOCK) -> EncodedBlocks:
        blocks = encode_blocks(
            magic,
            payloads,
            codec=_CODECS[self._policy.codec],
            level=self._policy.level,
            at=self._at,
            previous=previous,
        )
        self._sink.write(blocks.data)
        self._at += len(blocks.data)
        self._raw_bytes += sum(HEADER_SIZE + len(p) for p in payloads)
        return blocks


def encode_hfile(
    keys: Any,
    values: Any,
    *,
    info: Mapping[str, bytes] | None = None,
    meta: Mapping[str, bytes] | None = None,
    policy: HFilePolicy | None = None,
) -> bytes:
    """A whole HFile of sorted cells."""
    out = BytesIO()
    writer = HFileWriter(out, policy)
    writer.write(keys, values)
    writer.close(info=info, meta=meta)
    return out.getvalue()
