"""Written HFiles: byte-equal to HBase's, read back whole, and sound for every reader of Hudi."""

from __future__ import annotations

import hashlib
import io
import random
import struct
import zlib
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.codec.bloom import BloomFilter
from lakewright.codec.hfile import HFile, HFilePolicy, HFileWriter, encode_hfile
from lakewright.codec.hfile.layout_writing import cell_key
from lakewright.codec.hfile.writer import Sink
from lakewright.errors import FormatError, OptionError
from lakewright.storage.local import LocalStorage
from lakewright.testing.fuzz.hfile_model import model_cells
from tests.codec.hfile_builder import HBASE_PLAIN, build
from tests.corpus import CommittedTable, committed_tables
from tests.fixtures import SHARED_ABSENT, SharedTable, shared_tables, unpack
from tests.metadata.real_hfiles import RealHFile, hfiles_below

PLAIN = HFilePolicy(codec="none")


def hbase_index_key(before: bytes, first: bytes) -> bytes:
    """The shortest row between two blocks, as HBase 2.4 puts it into its index."""
    at = next((i for i, (a, b) in enumerate(zip(before, first, strict=False)) if a != b), None)
    if at is not None and before[at] < 255 and before[at] + 1 < first[at]:
        row = before[:at] + bytes([before[at] + 1])
    else:
        row = first[: (len(before) if at is None else at) + 1]
    return cell_key(row)[:-1] + b"\xff"


def numbered(count: int) -> tuple[pa.Array, pa.Array]:
    keys = [f"hudi-key-{n:09}".encode() for n in range(count)]
    values = [f"hudi-value-{n:09}".encode() for n in range(count)]
    return pa.array(keys, pa.binary()), pa.array(values, pa.binary())


HBASE_STYLE = HFilePolicy(
    codec="none",
    comparator="org.apache.hadoop.hbase.KeyValue$KVComparator",
    index_key=hbase_index_key,
)
SMALL_FILTER = b"/////wAAABQBAAABID797Rg6cC9QEnS/mT3C01cdQGaLYH2jbOCLtMA0RWppEH1HQg=="


@pytest.mark.parametrize(
    ("hbase_block", "written_block", "digest"),
    [
        (16384, 16402, "ef56447f92ca38f973e143b5aa5fa452d38073583d63fdeadc9a12743500887f"),
        (65536, 65549, "640c323ba635cf3534c61bf184295ae76d86efdf7fe746f3561df1b41d05efa8"),
    ],
)
def test_files_of_hbase_are_written_byte_by_byte(
    hbase_block: int, written_block: int, digest: str
) -> None:
    """The digests are of files that HBase 2.4.9 wrote for Hudi's own tests.

    HBase ends a block with the cell that reaches the limit, so its blocks are a cell larger.
    """
    assert written_block == -(-hbase_block // 59) * 59
    data = encode_hfile(
        *numbered(5000),
        info={"hudi_hfile_testing.custom_key": b"hudi_custom_value"},
        meta={"bloomFilter": SMALL_FILTER},
        policy=replace(HBASE_STYLE, block_bytes=written_block),
    )
    assert hashlib.sha256(data).hexdigest() == digest


def test_the_annotated_file_of_one_cell_begins_and_ends_as_told() -> None:
    name = b"files-0000-0_0-955-2690_00000000000000000.hfile"
    value = bytes(4) + b"\x02" + bytes([2 * len(name)]) + name + b"\x00\x02\x02\x00\x00\x00\x00\x00"
    key = b"__all_partitions__"
    filter_ = BloomFilter.build(pa.array([key]), entries=10_000)
    data = encode_hfile(
        pa.array([key]),
        pa.array([value]),
        info={
            "schema": b"s" * 8000,
            "bloomFilterTypeCode": b"DYNAMIC_V0",
            "minRecordKey": key,
            "maxRecordKey": key,
        },
        meta={"bloomFilter": filter_.encode().encode()},
        policy=HFilePolicy(level=6),
    )
    if not DEFLATES_AS_JAVA:
        return
    head = "4441 5441 424c 4b2a 0000 0060 0000 0064 ffff ffff ffff ffff 02 0000 4000 0000 007d"
    assert data[:33] == bytes.fromhex(head.replace(" ", ""))
    assert data[33:36] == b"\x1f\x8b\x08" and data[121:125] == struct.pack("<I", 100)
    assert data[125:129] == bytes.fromhex("1683cea6")
    assert data[129:137] == b"METABLKc"
    root = data.index(b"IDXROOT2")
    assert data[root + 8 : root + 16] == bytes.fromhex("000000370000002b")
    assert data.index(b"IDXROOT2", root + 1) == root + 88
    assert data[-4:] == b"\x03\x00\x00\x03"
    assert data[-4096:].rstrip(b"\x00").endswith(b"\x03\x00\x00\x03")


def test_an_empty_file_has_no_blocks_and_is_read_as_empty() -> None:
    none = pa.array([], pa.binary())
    data = encode_hfile(none, none, info={"schema": b"{}"})
    file = HFile(data, path="t")
    assert (file.entry_count, file.block_count, len(file.keys())) == (0, 0, 0)
    assert "hfile.LASTKEY" not in file.file_info
    assert model_cells(data) == []
    assert b"\x48" + b"\xff" * 9 + b"\x01\x50" + b"\xff" * 9 + b"\x01" in data[-4096:]


sorted_cells = st.dictionaries(st.binary(max_size=40), st.binary(max_size=300), max_size=60).map(
    lambda cells: sorted(cells.items())
)
Cells = list[tuple[bytes, bytes]]


def columns(cells: Cells) -> tuple[pa.Array, pa.Array]:
    keys, values = ([c[i] for c in cells] for i in (0, 1))
    return pa.array(keys, pa.binary()), pa.array(values, pa.binary())


@settings(max_examples=60, deadline=None)
@given(
    sorted_cells,
    st.lists(st.integers(0, 60), max_size=4),
    st.integers(1, 2000),
    st.sampled_from(["gz", "none"]),
)
def test_cells_come_back_whatever_the_batches(
    cells: Cells, cuts: list[int], block_bytes: int, codec: str
) -> None:
    policy = HFilePolicy(codec=codec, block_bytes=block_bytes, level=1)  # type: ignore[arg-type]
    out = io.BytesIO()
    writer = HFileWriter(out, policy)
    edges = [0, *sorted(min(c, len(cells)) for c in cuts), len(cells)]
    for first, last in pairwise(edges):
        writer.write(*columns(cells[first:last]))
    summary = writer.close(info={"schema": b"x"}, meta={"b": b"2", "a": b"1"})
    data = out.getvalue()
    assert data == encode_hfile(
        *columns(cells), info={"schema": b"x"}, meta={"a": b"1", "b": b"2"}, policy=policy
    )
    file = HFile(data, path="t")
    keys, values = file.cells()
    assert list(zip(keys.to_pylist(), values.to_pylist(), strict=True)) == cells
    assert model_cells(data) == cells
    assert file.lookup(keys).equals(values)
    assert (file.meta_block("a"), file.meta_block("b")) == (b"1", b"2")
    assert (summary.entries, summary.size) == (len(cells), len(data))
    assert (summary.first_key, summary.last_key) == (
        (cells[0][0], cells[-1][0]) if cells else (None, None)
    )


def test_a_plain_builder_has_the_same_blocks_and_indexes() -> None:
    """It follows the format on its own, and leaves some of file info and trailer at zero."""
    rng = random.Random(4)
    cells = [(f"{n:05}".encode(), rng.randbytes(rng.randrange(90))) for n in range(900)]
    policy = HFilePolicy(codec="none", block_bytes=1024)
    ours = encode_hfile(*columns(cells), policy=policy)
    plain = build(cells, HBASE_PLAIN, block_size=policy.block_bytes)
    begin, end = ours.index(b"IDXROOT2"), ours.index(b"FILEINF2")
    assert ours[begin:end] == plain[begin:end]
    assert model_cells(plain) == model_cells(ours) == cells


def blocks_of(data: bytes) -> list[tuple[int, int, int]]:
    """Stored size, raw size and offset of all data blocks, by walking from the first."""
    found, at = [], 0
    while data[at : at + 8] == b"DATABLK*":
        stored, raw, previous = struct.unpack_from(">iiq", data, at + 8)
        assert previous == (found[-1][2] if found else -1)
        found.append((stored, raw, at))
        at += 33 + stored
    return found


@pytest.mark.parametrize(
    "policy", [HFilePolicy(level=0), HFilePolicy(), PLAIN], ids=["stored", "gz", "plain"]
)
def test_hudi_1_0_misses_no_cell(policy: HFilePolicy) -> None:
    """It ignores cells that begin in the last 4 bytes per 16 KiB of a block's raw content."""
    rng = random.Random(9)
    cells = [(f"{n:06}".encode(), rng.randbytes(rng.choice((0, 0, 1, 40)))) for n in range(20_000)]
    cells[700] = (cells[700][0], rng.randbytes(300_000))
    data = encode_hfile(*columns(cells), policy=policy)
    blocks = blocks_of(data)
    assert len(blocks) > 5
    file = HFile(data, path="t")
    for stored, raw, at in blocks:
        missed = 4 * -(-(33 + stored) // 16384)
        alone = raw > policy.block_bytes
        assert missed < 21 or alone
        assert raw - missed > 0
        assert at < file.trailer.load_on_open_offset
    assert sum(raw > policy.block_bytes for _, raw, _ in blocks) == 1
    assert file.trailer.levels == 1 and file.cells()[0].to_pylist() == [k for k, _ in cells]


def test_batches_beyond_what_is_held_at_once_make_the_same_file() -> None:
    count = 60_000
    keys = pa.array([f"k{n:07}" for n in range(count)], pa.large_string())
    values = pa.array([b"v" * 100] * count, pa.large_binary())
    whole = encode_hfile(keys, values, policy=PLAIN)
    out = io.BytesIO()
    writer = HFileWriter(out, PLAIN)
    for first in range(0, count, 7001):
        writer.write(keys[first : first + 7001], values[first : first + 7001])
        assert out.tell() == writer.size
    writer.close()
    assert out.getvalue() == whole


def test_columns_of_any_text_and_chunks_are_taken() -> None:
    out = io.BytesIO()
    writer = HFileWriter(out)
    writer.write(pa.chunked_array([["a"], ["b", "ü"]]), pa.array(["1", "2", "3"]))
    writer.write(pa.array(["ÿ"], pa.large_string()), pa.array([b"4"], pa.large_binary()))
    writer.close()
    expected = [(b"a", b"1"), (b"b", b"2"), ("ü".encode(), b"3"), ("ÿ".encode(), b"4")]
    assert model_cells(out.getvalue()) == expected


@pytest.mark.parametrize(
    ("keys", "values"),
    [
        ([b"b", b"a"], [b"", b""]),
        ([b"a", b"a"], [b"", b""]),
        ([b"\xc3", b"\x7f"], [b"", b""]),
        ([b"a", None], [b"", b""]),
        ([b"a", b"b"], [b"", None]),
        ([b"a", b"b"], [b""]),
        ([b"x" * 32_768], [b""]),
    ],
)
def test_cells_that_no_reader_would_find_are_refused(
    keys: list[bytes | None], values: list[bytes | None]
) -> None:
    out = io.BytesIO()
    with pytest.raises(FormatError, match="Cells cannot be written"):
        HFileWriter(out).write(pa.array(keys, pa.binary()), pa.array(values, pa.binary()))
    assert out.getvalue() == b""


def test_order_holds_over_batches() -> None:
    writer = HFileWriter(io.BytesIO())
    writer.write(*columns([(b"a", b""), (b"b", b"")]))
    with pytest.raises(FormatError, match="ascend") as caught:
        writer.write(*columns([(b"b", b"")]))
    assert caught.value.context["key"] == "b"
    writer.write(*columns([(b"c" * 32_767, b"")]))
    assert writer.close().entries == 3


@pytest.mark.parametrize(
    "wrong", [{"codec": "zstd"}, {"level": 10}, {"block_bytes": 0}, {"block_bytes": 1 << 20}]
)
def test_policies_that_lose_cells_or_readers_are_refused(wrong: Mapping[str, object]) -> None:
    with pytest.raises(OptionError):
        HFilePolicy(**wrong)  # type: ignore[arg-type]


def test_written_files_are_read_from_storage_by_key(tmp_path: Path) -> None:
    keys, values = numbered(30_000)
    storage = LocalStorage(str(tmp_path))

    def write(sink: Sink) -> None:
        writer = HFileWriter(sink, PLAIN)
        writer.write(keys, values)
        writer.close()

    storage.create_from("big.hfile", write)
    file = HFile.open(storage, "big.hfile")
    assert file.lookup([keys[17].as_py(), b"none"]).to_pylist() == [values[17].as_py(), None]


QUICK = ("mor_v6_services.zip", "mor_v8_complex_keygen.zip", "cow_v9_simple_overwrite.zip")
WITH_METADATA = [
    pytest.param(t, id=t.id, marks=[] if t.zip in QUICK else [pytest.mark.slow])
    for t in shared_tables()
    if not t.refused
]
DEFLATES_AS_JAVA = hashlib.sha256(zlib.compress(bytes(range(256)) * 99, 6)).hexdigest() == (
    "d2c133e9e635f476c3b5dd5389a38921c3c6d61379ce70fd538cd79ae048a128"
)
"""Whether this zlib is the common one; others pack as well into other bytes."""


@pytest.mark.skipif(not WITH_METADATA, reason=SHARED_ABSENT)
@pytest.mark.parametrize("table", WITH_METADATA)
def test_every_real_file_is_written_again_from_its_cells(
    table: SharedTable, tmp_path: Path
) -> None:
    check_rewritten(unpack(table, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("table", committed_tables(), ids=lambda t: t.name)
def test_every_committed_file_is_written_again_from_its_cells(
    table: CommittedTable, tmp_path: Path
) -> None:
    check_rewritten(table.unpack(tmp_path))


def check_rewritten(table: Path) -> None:
    for real in hfiles_below(table):
        again = rewritten(real)
        if real.by_hbase and DEFLATES_AS_JAVA:
            assert again == real.data, real.path
        assert HFile(again, path="t").cells() == real.file.cells(), real.path


def rewritten(real: RealHFile) -> bytes:
    """The same cells, meta blocks and info of its own."""
    own = {"KEY_VALUE_VERSION", "MAX_MEMSTORE_TS_KEY"}
    info = {
        name: value
        for name, value in real.file.file_info.items()
        if name not in own and not name.startswith("hfile.")
    }
    text = real.file.meta_block("bloomFilter")
    policy = HFilePolicy(
        codec="gz" if real.file.trailer.codec_name == "gz" else "none",
        level=6,
        comparator=real.file.trailer.comparator,
        index_key=hbase_index_key,
    )
    meta = {} if text is None else {"bloomFilter": text}
    return encode_hfile(*real.file.cells(), info=info, meta=meta, policy=policy)
