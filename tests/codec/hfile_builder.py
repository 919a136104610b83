"""HFiles of every producer, built plainly: what the reader is tested against.

Follows the format byte by byte and slowly, on purpose without any code of the product.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SUFFIX = b"\x00" + b"\x7f" + b"\xff" * 7 + b"\x04"
TRAILER = 4096


def castagnoli(data: bytes) -> int:
    """CRC32C, bit by bit."""
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = (register >> 1) ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


@dataclass(frozen=True)
class Producer:
    """How one generation of writers fills the same format."""

    name: str
    gz: bool = True
    checksum: int = 2
    checksum_bytes: bool = True
    cell_suffix: bool = True
    index_suffix: bool = True
    minor: int = 3
    full_info: bool = True
    encryption_field: bool = False
    chunk: int = 16384


HBASE = Producer("hbase")
HBASE_PLAIN = Producer("hbase-none", gz=False)
CRC32 = Producer("crc32", checksum=1, chunk=100)
NATIVE_EARLY = Producer(
    "native-early",
    checksum=0,
    checksum_bytes=False,
    cell_suffix=False,
    index_suffix=False,
    minor=0,
    full_info=False,
    encryption_field=True,
)
NATIVE = Producer("native", checksum=0, index_suffix=False, minor=0)
NATIVE_LATEST = Producer("native-latest", checksum=0, minor=0)
PRODUCERS = (HBASE, HBASE_PLAIN, CRC32, NATIVE_EARLY, NATIVE, NATIVE_LATEST)


def vint(value: int) -> bytes:
    """Hadoop's variable-length integer, for values that are not negative."""
    if value <= 127:
        return bytes([value])
    body = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return bytes([(-112 - len(body)) % 256]) + body


def varint(value: int) -> bytes:
    """Protobuf's variable-length integer."""
    value %= 1 << 64
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, value: int | bytes) -> bytes:
    """One protobuf field."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def block(magic: bytes, payload: bytes, by: Producer, previous: int = -1) -> bytes:
    """One block with its checksums."""
    stored = gzip.compress(payload, mtime=0) if by.gz else payload
    on_disk = 33 + len(stored)
    chunks = -(-on_disk // by.chunk)
    sums = 4 * chunks if by.checksum or by.checksum_bytes else 0
    head = magic + struct.pack(
        ">iiqbii", len(stored) + sums, len(payload), previous, by.checksum, by.chunk, on_disk
    )
    whole = head + stored
    crc = {0: lambda _: 0, 1: zlib.crc32, 2: castagnoli}[by.checksum]
    parts = [whole[i * by.chunk : (i + 1) * by.chunk] for i in range(chunks)]
    return whole + b"".join(struct.pack(">I", crc(p)) for p in parts)[:sums]


def cell(row: bytes, value: bytes, by: Producer) -> bytes:
    """One cell of a data block."""
    key = cell_key(row, by.cell_suffix)
    return struct.pack(">ii", len(key), len(value)) + key + value + b"\x00"


def cell_key(row: bytes, suffix: bool) -> bytes:
    """A row with its length and, where the producer writes it, HBase's suffix."""
    return struct.pack(">H", len(row)) + row + (SUFFIX if suffix else b"")


Entry = tuple[int, int, bytes]


def build(
    cells: Sequence[tuple[bytes, bytes]],
    by: Producer = HBASE,
    *,
    block_size: int = 1024,
    levels: int = 1,
    fanout: int = 3,
    meta: Mapping[str, bytes] | None = None,
    info: Mapping[str, bytes] | None = None,
    entry_count: int | None = None,
) -> bytes:
    """A whole HFile of sorted cells."""
    out = bytearray()
    entries: list[Entry] = []

    def add(magic: bytes, payload: bytes, previous: int = -1) -> tuple[int, int]:
        raw = block(magic, payload, by, previous)
        at = len(out)
        out.extend(raw)
        return at, len(raw)

    pending = bytearray()
    first = b""
    for row, value in [*cells, (b"", None)]:
        made = cell(row, value, by) if value is not None else b""
        if pending and (value is None or len(pending) + len(made) > block_size):
            entries.append((*add(b"DATABLK*", bytes(pending)), cell_key(first, by.index_suffix)))
            pending.clear()
        if not pending:
            first = row
        pending += made
    meta_entries = [
        (*add(b"METABLKc", content), name.encode())
        for name, content in sorted((meta or {}).items())
    ]
    for level in range(1, levels):
        magic = b"IDXLEAF2" if level == 1 else b"IDXINTE2"
        groups = [entries[i : i + fanout] for i in range(0, len(entries), fanout)]
        entries = [(*add(magic, node(g)), g[0][2]) for g in groups]
    root = b"".join(struct.pack(">qi", o, s) + vint(len(k)) + k for o, s, k in entries)
    if levels > 1:
        root += struct.pack(">qii", 0, 0, 0)
    load_on_open, _ = add(b"IDXROOT2", root)
    names = b"".join(struct.pack(">qi", o, s) + vint(len(k)) + k for o, s, k in meta_entries)
    add(b"IDXROOT2", names, load_on_open)
    info_at, _ = add(b"FILEINF2", file_info(cells, by, info or {}))
    count = len(cells) if entry_count is None else entry_count
    out.extend(trailer(by, info_at, load_on_open, len(entries), len(meta_entries), count, levels))
    return bytes(out)


def node(entries: Sequence[Entry]) -> bytes:
    """A leaf or intermediate index block."""
    bodies = [struct.pack(">qi", o, s) + k for o, s, k in entries]
    relative = [sum(map(len, bodies[:i])) for i in range(len(bodies) + 1)]
    return struct.pack(f">{len(relative) + 1}i", len(bodies), *relative) + b"".join(bodies)


def file_info(
    cells: Sequence[tuple[bytes, bytes]], by: Producer, extra: Mapping[str, bytes]
) -> bytes:
    """The file info block."""
    pairs = {"MAX_MEMSTORE_TS_KEY": bytes(8 if by.full_info else 1), **extra}
    if by.full_info:
        pairs |= {"KEY_VALUE_VERSION": b"\x00\x00\x00\x01", "hfile.AVG_KEY_LEN": bytes(4)}
    if cells:
        pairs["hfile.LASTKEY"] = cell_key(cells[-1][0], by.index_suffix)
    body = b"".join(
        field(1, field(1, name.encode()) + field(2, value)) for name, value in sorted(pairs.items())
    )
    return b"PBUF" + varint(len(body)) + body


def trailer(
    by: Producer, info_at: int, load_on_open: int, data: int, meta: int, count: int, levels: int
) -> bytes:
    """The last 4096 bytes."""
    body = field(1, info_at) + field(2, load_on_open) + field(3, 0)
    if by.full_info:
        body += field(4, 0)
    body += field(5, data) + field(6, meta) + field(7, count) + field(8, levels)
    body += field(9, 0 if count else -1) + field(10, 0 if count else -1)
    body += field(11, b"org.apache.hudi.io.storage.HoodieHBaseKVComparator")
    body += field(12, 1 if by.gz else 2)
    if by.encryption_field:
        body += field(13, b"")
    head = b'TRABLK"$' + varint(len(body)) + body
    return head + bytes(TRAILER - 4 - len(head)) + struct.pack(">I", by.minor << 24 | 3)
