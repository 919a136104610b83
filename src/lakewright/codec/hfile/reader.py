"""HFile reader: keys and values of HBase's sorted file, as Hudi's metadata table uses it.

Reads what any of Hudi's writers left (HBase 2.4 and three native generations), with any number of
index levels, uncompressed or gzip. Keys are byte-sorted and come in file order as Arrow binary
arrays; a look-up or a prefix scan touches only the blocks the index names. Every promise the bytes
break - magics, sizes, checksums, counts, order - is a `CorruptFileError` with path and offset;
other codecs are a `FormatError` with the codec's name. Checksums are verified unless told not to;
those of compressed data blocks are gzip's own.
An index without checksums, as Hudi's own writers leave it, is not trusted to say that a key is
missing: where a key falls between two blocks, both are read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakewright.codec.hfile.blocks import HEADER_SIZE, Region, read_blocks
from lakewright.codec.hfile.cells import Cells, starting_with, walk
from lakewright.codec.hfile.layout import (
    CODEC_GZ,
    DATA_MAGIC,
    FILE_INFO_MAGIC,
    INTERMEDIATE_MAGIC,
    LEAF_MAGIC,
    META_MAGIC,
    ROOT_MAGIC,
    TRAILER_SIZE,
    BlockIndex,
    Site,
    Trailer,
    cell_row,
    parse_file_info,
    parse_node_index,
    parse_root_index,
    parse_trailer,
)
from lakewright.codec.hfile.source import MemorySource, StoredSource, stored_source
from lakewright.errors import FormatError
from lakewright.storage.base import Storage

__all__ = ["HFile"]

Int64s = npt.NDArray[np.int64]

_RAW_AT_ONCE: Final = 1 << 28
"""Decompressed bytes held at a time while cells are read."""
_ALL_BLOCKS_FROM: Final = 4
"""Keys per block from which a look-up reads all blocks instead of asking the index per key."""


class HFile:
    """One HFile, opened: trailer, indexes and file info are read, data blocks on demand."""

    def __init__(self, data: Any, *, path: str, base_offset: int = 0, verify: bool = True) -> None:
        """Open a whole HFile in memory: bytes, a memoryview, an Arrow buffer (or a `Source`).

        `base_offset` is where it starts in `path` (inside a log block), for errors only.
        """
        source = data if isinstance(data, MemorySource | StoredSource) else MemorySource(data)
        site = Site(path, base_offset)
        self._source, self._site, self._verify = source, site, verify
        self._trusts_index = verify
        self._edges: dict[int, tuple[bytes, bytes]] = {}
        if source.size < TRAILER_SIZE:
            raise site.corrupt(f"{source.size} bytes are fewer than a trailer has", 0)
        at = source.size - TRAILER_SIZE
        tail = source.region(at, source.size)
        self.trailer: Trailer = parse_trailer(tail.view(at, source.size), site, at)
        opened = source.region(self.trailer.load_on_open_offset, at)
        root, after = self._index_block(opened, self.trailer.load_on_open_offset, ROOT_MAGIC, at)
        meta, _ = self._index_block(opened, after, ROOT_MAGIC, at)
        info, _ = self._index_block(opened, self.trailer.file_info_offset, FILE_INFO_MAGIC, at)
        info_at = self.trailer.file_info_offset
        self.file_info: dict[str, bytes] = parse_file_info(info, site, info_at)
        self._meta = parse_root_index(meta, self.trailer.meta_index_count, site, after)
        self._index = self._data_index(root)
        self._offsets = np.array(self._index.offsets, np.int64)
        self._sizes = np.array(self._index.sizes, np.int64)

    @classmethod
    def open(
        cls, storage: Storage, path: str, *, size: int | None = None, verify: bool = True
    ) -> HFile:
        """Open a stored HFile; only the parts that are needed are fetched from a large one."""
        return cls(stored_source(storage, path, size), path=path, verify=verify)

    @property
    def path(self) -> str:
        """The file the HFile was read from."""
        return self._site.path

    @property
    def offset(self) -> int:
        """Where it begins in that file."""
        return self._site.base_offset

    @property
    def entry_count(self) -> int:
        """Number of cells, as the trailer tells."""
        return self.trailer.entry_count

    @property
    def first_key(self) -> bytes | None:
        """The least key, as the index has it; None if there are no cells."""
        return self._index.keys[0] if self._index.keys else None

    @property
    def block_count(self) -> int:
        """Number of data blocks."""
        return len(self._index)

    def cells(self) -> tuple[pa.BinaryArray, pa.BinaryArray]:
        """All keys and values, in file order."""
        keys: list[pa.BinaryArray] = []
        values: list[pa.BinaryArray] = []
        held = 0
        for cells in self._all_cells():
            keys.append(cells.rows())
            values.append(cells.values())
            held += values[-1].nbytes
            self._check_size(held)  # a damaged file can inflate to a thousand times its size
        return self._joined(keys), self._joined(values)

    def iter_cells(self) -> Iterator[tuple[pa.BinaryArray, pa.BinaryArray]]:
        """All keys and values in file order, in parts of bounded size."""
        for cells in self._all_cells():
            yield cells.rows(), cells.values()

    def keys(self) -> pa.BinaryArray:
        """All keys, in file order, without copying the values."""
        return self._joined([c.rows() for c in self._all_cells()])

    def lookup(self, keys: pa.Array | Sequence[bytes]) -> pa.BinaryArray:
        """The value of each given key, null where the file has no such key."""
        wanted = keys if isinstance(keys, pa.Array) else pa.array(keys, pa.binary())
        wanted = wanted.cast(pa.binary())
        distinct = wanted.drop_null().unique()
        codes: list[npt.NDArray[Any]] = []
        values: list[pa.BinaryArray] = []
        for cells in self._cells_with(distinct):
            code = pc.index_in(cells.rows(), value_set=distinct)
            hit = np.flatnonzero(code.is_valid())
            codes.append(np.asarray(code.fill_null(-1))[hit])
            values.append(cells.values(hit))
        slot = np.full(len(distinct) + 1, -1, np.int64)
        if codes:
            slot[np.concatenate(codes)] = np.arange(sum(len(c) for c in codes))
        if len(distinct) == len(wanted):  # they are in the same order, once each
            place = slot[:-1]
        else:
            asked = pc.index_in(wanted, value_set=distinct).fill_null(len(distinct))
            place = slot[np.asarray(asked)]
        return self._joined(values).take(pa.array(place, mask=place < 0))

    def prefix(self, prefix: bytes) -> tuple[pa.BinaryArray, pa.BinaryArray]:
        """Keys that start with `prefix` and their values, in file order."""
        return self.prefixes([prefix])

    def prefixes(self, prefixes: Sequence[bytes]) -> tuple[pa.BinaryArray, pa.BinaryArray]:
        """Keys that start with any of the prefixes and their values, in file order."""
        keys: list[pa.BinaryArray] = []
        values: list[pa.BinaryArray] = []
        for cells in self._cells_of(self._blocks_starting(prefixes)):
            rows = cells.rows()
            at = np.flatnonzero(starting_with(rows, prefixes))
            keys.append(rows.take(pa.array(at)))
            values.append(cells.values(at))
        return self._joined(keys), self._joined(values)

    def meta_block(self, name: str) -> bytes | None:
        """The content of a named meta block (`bloomFilter`), or None."""
        wanted = name.encode()
        for offset, size, key in zip(
            self._meta.offsets, self._meta.sizes, self._meta.keys, strict=True
        ):
            if key == wanted:
                return bytes(self._node(offset, size, META_MAGIC))
        return None

    def _data_index(self, root: memoryview) -> BlockIndex:
        """All data blocks: the root index, expanded through the levels below it."""
        site, start = self._site, self.trailer.load_on_open_offset
        index = parse_root_index(root, self.trailer.data_index_count, site, start)
        self._check_order(index)
        for level in range(self.trailer.levels - 1, 0, -1):
            magic = LEAF_MAGIC if level == 1 else INTERMEDIATE_MAGIC
            below = BlockIndex([], [], [])
            for offset, size in zip(index.offsets, index.sizes, strict=True):
                node = parse_node_index(self._node(offset, size, magic), site, offset)
                below.offsets.extend(node.offsets)
                below.sizes.extend(node.sizes)
                below.keys.extend(node.keys)
            # Strictly ascending blocks also bound the work: no block can be named twice.
            self._check_order(below)
            index = below
        rows = [cell_row(k, site, o) for k, o in zip(index.keys, index.offsets, strict=True)]
        for earlier, later, offset in zip(rows, rows[1:], index.offsets[1:], strict=False):
            if later < earlier:
                raise site.corrupt("the keys of the index are not ascending", offset)
        return BlockIndex(index.offsets, index.sizes, rows)

    def _check_order(self, index: BlockIndex) -> None:
        end, limit = 0, self.trailer.load_on_open_offset
        for offset, size in zip(index.offsets, index.sizes, strict=True):
            if offset < end or size < HEADER_SIZE:
                raise self._site.corrupt("the blocks of an index overlap", end)
            if offset + size > limit:
                raise self._site.corrupt("an index names a block behind the data", limit)
            end = offset + size

    def _node(self, offset: int, size: int, magic: bytes) -> memoryview:
        end = self.trailer.load_on_open_offset
        if offset < 0 or size < HEADER_SIZE or offset + size > end:
            raise self._site.corrupt("an index names a block outside of the data", end)
        region = self._source.region(offset, offset + size)
        payload, after = self._index_block(region, offset, magic, end)
        if after != offset + size:
            raise self._site.corrupt("a block has another size than its index entry", offset)
        return payload

    def _index_block(
        self, region: Region, offset: int, magic: bytes, end: int
    ) -> tuple[memoryview, int]:
        """The payload of one block, and the offset behind it."""
        at = np.array([offset], np.int64)
        block = read_blocks(region, at, magic, self._site, end=end, verify=self._verify)
        self._trusts_index &= block.summed
        payload = block.payloads(self.trailer.codec, self._site).one()
        return payload, offset + int(block.sizes[0])

    def _all_cells(self) -> Iterator[Cells]:
        found = 0
        if self.entry_count:
            for cells in self._cells_of(np.arange(self.block_count)):
                found += len(cells)
                yield cells
        if found != self.entry_count:
            what = f"{found} cells instead of {self.entry_count}"
            raise self._site.corrupt(what, self._source.size - TRAILER_SIZE)

    def _cells_of(self, blocks: Int64s) -> Iterator[Cells]:
        """The cells of the given blocks (ascending), in parts of bounded size."""
        offsets, sizes = self._offsets[blocks], self._sizes[blocks]
        end = self.trailer.load_on_open_offset
        for region, part in self._source.regions(offsets, sizes):
            read = read_blocks(
                region,
                offsets[part],
                DATA_MAGIC,
                self._site,
                end=end,
                sizes=sizes[part],
                # What is compressed with gzip carries gzip's own sum, which inflating verifies.
                verify=self._verify and self.trailer.codec != CODEC_GZ,
            )
            first = 0
            while first < len(read.offsets):  # bounded by the number of blocks
                raw = np.cumsum(read.raw_sizes[first:])
                last = first + max(1, int(np.searchsorted(raw, _RAW_AT_ONCE)))
                some = read.part(first, last)
                payloads = some.payloads(self.trailer.codec, self._site)
                cells = walk(payloads, some.offsets, self._site)
                self._check_edges(blocks[part][first:last], cells)
                yield cells
                first = last

    def _check_edges(self, blocks: Int64s, cells: Cells) -> None:
        """Note the first and last keys of blocks, which must lie where the index says."""
        keys = self._index.keys
        for number, edge in zip(blocks.tolist(), cells.edges(), strict=True):
            if edge is None:
                continue
            self._edges[number] = edge
            behind = keys[number + 1] if number + 1 < len(keys) else None
            if keys[number] > edge[0] or (behind is not None and edge[1] > behind):
                what = "the keys of a block are not where the index has them"
                raise self._site.corrupt(what, int(self._offsets[number]))

    def _cells_with(self, keys: pa.BinaryArray) -> Iterator[Cells]:
        blocks = self._blocks_with(keys)
        yield from self._cells_of(blocks)
        yield from self._cells_of(self._doubtful(keys, blocks))

    def _blocks_with(self, keys: pa.BinaryArray) -> Int64s:
        """The blocks that may hold any of the keys."""
        if len(keys) >= _ALL_BLOCKS_FROM * self.block_count:
            return np.arange(self.block_count)
        found = {bisect_right(self._index.keys, k) - 1 for k in keys.to_pylist()}
        return np.array(sorted(found - {-1}), np.int64)

    def _doubtful(self, keys: pa.BinaryArray, read: Int64s) -> Int64s:
        """Blocks beside those that were read, where an index that is not trusted may hide a key."""
        if self._trusts_index or len(read) == self.block_count:
            return np.zeros(0, np.int64)
        found: set[int] = set()
        for key in keys.to_pylist():  # fewer than `_ALL_BLOCKS_FROM` per block
            number = bisect_right(self._index.keys, key) - 1
            first, last = self._edges.get(number, (b"", b""))
            if key < first or key > last:
                found.add(number - 1 if key < first else number + 1)
        inside = found & set(range(self.block_count))
        return np.array(sorted(inside - set(read.tolist())), np.int64)

    def _blocks_starting(self, prefixes: Sequence[bytes]) -> Int64s:
        wanted = np.zeros(self.block_count, np.bool_)
        for prefix in prefixes:  # bounded by what the caller asks for
            first = max(0, bisect_right(self._index.keys, prefix) - 1)
            behind = _behind(prefix)
            last = bisect_left(self._index.keys, behind) if behind else self.block_count
            beside = 0 if self._trusts_index else 1
            wanted[max(0, first - beside) : last + beside] = True
        return np.flatnonzero(wanted)

    def _joined(self, parts: list[pa.BinaryArray]) -> pa.BinaryArray:
        if len(parts) == 1:
            return parts[0]
        self._check_size(sum(p.nbytes for p in parts))
        return pa.concat_arrays(parts) if parts else pa.array([], pa.binary())

    def _check_size(self, held: int) -> None:
        if held >= 1 << 31:
            raise FormatError(
                "HFile holds more than 2 GiB of keys or values.",
                hint="Read it in parts, or look up keys instead of reading everything.",
                context={"path": self.path, "offset": self._site.base_offset},
            )


def _behind(prefix: bytes) -> bytes:
    """The least byte string that is greater than every string with this prefix; empty if none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else b""
