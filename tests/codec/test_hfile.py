"""HFiles of every producer are read whole, by key and by prefix; broken promises are errors."""

from __future__ import annotations

import random
import struct
from bisect import bisect_left
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.codec.hfile import HFile
from lakewright.codec.hfile.layout import Site, parse_file_info
from lakewright.errors import CorruptFileError, FormatError
from lakewright.storage.local import LocalStorage
from tests.codec import hfile_builder as builder
from tests.codec.hfile_builder import HBASE, HBASE_PLAIN, NATIVE, PRODUCERS, Producer, build
from tests.fixtures import SHARED_ABSENT, SharedTable, shared_tables, unpack

Cells = list[tuple[bytes, bytes]]


def some_cells(count: int, *, value_size: int = 20) -> Cells:
    rng = random.Random(count)
    keys = sorted({f"key-{rng.randrange(10**9):09}".encode() for _ in range(count)})
    return [(k, rng.randbytes(rng.randrange(value_size))) for k in keys]


def read(data: bytes) -> Cells:
    keys, values = HFile(data, path="t.hfile").cells()
    assert keys.type == values.type == pa.binary()
    return list(zip(keys.to_pylist(), values.to_pylist(), strict=True))


@pytest.mark.parametrize("by", PRODUCERS, ids=lambda p: p.name)
@pytest.mark.parametrize("count", [0, 1, 2, 300])
def test_files_of_every_producer_are_read_whole(by: Producer, count: int) -> None:
    cells = some_cells(count)
    file = HFile(build(cells, by, block_size=200, meta={"bloomFilter": b"abc"}), path="t.hfile")
    assert file.entry_count == len(cells)
    assert file.keys().to_pylist() == [k for k, _ in cells]
    assert [v for _, vs in file.iter_cells() for v in vs.to_pylist()] == [v for _, v in cells]
    assert file.meta_block("bloomFilter") == b"abc"
    assert file.meta_block("other") is None
    assert ("KEY_VALUE_VERSION" in file.file_info) == by.full_info


@pytest.mark.parametrize("levels", [1, 2, 3, 4])
@pytest.mark.parametrize("by", [HBASE, NATIVE], ids=lambda p: p.name)
def test_an_index_of_any_depth_is_followed(by: Producer, levels: int) -> None:
    cells = some_cells(400)
    data = build(cells, by, block_size=300, levels=levels)
    assert read(data) == cells
    wanted = [cells[7][0], b"absent", cells[300][0]]
    found = HFile(data, path="t").lookup(wanted)
    assert found.to_pylist() == [cells[7][1], None, cells[300][1]]


@pytest.mark.parametrize("blocks", ["few", "many"])
def test_blocks_walked_together_or_one_by_one_give_the_same(blocks: str) -> None:
    cells = some_cells(2000)
    data = build(cells, HBASE_PLAIN, block_size=300 if blocks == "many" else 10_000)
    assert (HFile(data, path="t").block_count > 40) == (blocks == "many")
    assert read(data) == cells


keys_ = st.lists(st.binary(max_size=12), unique=True, max_size=40).map(sorted)


@settings(max_examples=60, deadline=None)
@given(
    keys_,
    st.lists(st.binary(max_size=6), max_size=6),
    st.integers(30, 400),
    st.sampled_from(PRODUCERS),
    st.integers(1, 3),
)
def test_lookups_and_prefixes_agree_with_a_dictionary(
    keys: list[bytes], asked: list[bytes], block_size: int, by: Producer, levels: int
) -> None:
    content = {k: k[::-1] + b"!" for k in keys}
    file = HFile(build(list(content.items()), by, block_size=block_size, levels=levels), path="t")
    wanted = asked + keys[::3] + asked
    assert file.lookup(wanted).to_pylist() == [content.get(k) for k in wanted]
    for prefix in asked:
        found, values = file.prefix(prefix)
        assert found.to_pylist() == [k for k in keys if k.startswith(prefix)]
        assert values.to_pylist() == [content[k] for k in found.to_pylist()]
    several, _ = file.prefixes(asked)
    assert several.to_pylist() == [k for k in keys if any(k.startswith(p) for p in asked)]


def test_a_prefix_of_ones_has_no_upper_end() -> None:
    cells = [(b"\xfe", b"1"), (b"\xff\xff", b"2"), (b"\xff\xff\x01", b"3")]
    file = HFile(build(cells, block_size=10), path="t")
    assert file.prefix(b"\xff")[1].to_pylist() == [b"2", b"3"]
    assert file.prefix(b"")[1].to_pylist() == [b"1", b"2", b"3"]


def test_string_columns_and_nulls_can_be_looked_up() -> None:
    cells = some_cells(50)
    file = HFile(build(cells), path="t")
    asked = pa.array([cells[3][0].decode(), None, "x"])
    assert file.lookup(asked).to_pylist() == [cells[3][1], None, None]


def test_index_keys_may_be_shortened_ones_between_two_blocks() -> None:
    cells = [(b"aaa", b"1"), (b"mmm", b"2")]
    data = bytearray(build(cells, HBASE_PLAIN, block_size=30))
    at = data.rindex(b"mmm" + builder.SUFFIX, 0, data.rindex(b"FILEINF2"))
    data[at : at + 3] = b"ccc"
    file = HFile(bytes(data), path="t", verify=False)
    assert file.lookup([b"aaa", b"bbb", b"ddd", b"mmm"]).to_pylist() == [b"1", None, None, b"2"]


class CountingStorage(LocalStorage):
    """A local storage that remembers the ranges it was asked for."""

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        self.__dict__.setdefault("ranges", []).append((offset, length))
        return super().read_range(path, offset, length)


def test_a_lookup_in_a_large_stored_file_fetches_only_what_it_needs(tmp_path: Path) -> None:
    cells = some_cells(3000, value_size=3000)
    (tmp_path / "big.hfile").write_bytes(build(cells, HBASE_PLAIN_NO_SUMS, block_size=65536))
    storage = CountingStorage(str(tmp_path))
    file = HFile.open(storage, "big.hfile")
    opened = len(storage.ranges)
    assert file.lookup([cells[1000][0], b"zzz"]).to_pylist() == [cells[1000][1], None]
    assert opened == 1 and len(storage.ranges) == 3
    assert sum(n for _, n in storage.ranges[opened:]) < 200_000
    keys, values = file.cells()
    assert list(zip(keys.to_pylist(), values.to_pylist(), strict=True)) == cells


HBASE_PLAIN_NO_SUMS = Producer("plain", gz=False, checksum=0)


def test_a_stored_file_that_ends_early_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "big.hfile").write_bytes(bytes(2 << 20))
    with pytest.raises(CorruptFileError):
        HFile.open(LocalStorage(str(tmp_path)), "big.hfile", size=3 << 20)


def broken(data: bytes, match: str, *, offset: int | None = None) -> None:
    with pytest.raises(CorruptFileError, match=match) as caught:
        HFile(data, path="dir/t.hfile", base_offset=1000).cells()
    assert caught.value.context["path"] == "dir/t.hfile"
    at = caught.value.context["offset"]
    assert isinstance(at, int) and at >= 1000
    if offset is not None:
        assert at == 1000 + offset


CELLS = some_cells(60)
GOOD = build(CELLS, HBASE_PLAIN, block_size=400)
UNSUMMED = build(CELLS, HBASE_PLAIN_NO_SUMS, block_size=400)


def patched(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def test_a_file_shorter_than_a_trailer_is_an_error() -> None:
    broken(GOOD[-4000:], "fewer than a trailer", offset=0)


def test_a_wrong_trailer_magic_is_an_error() -> None:
    broken(patched(GOOD, len(GOOD) - 4096, b"XXXX"), "magic", offset=len(GOOD) - 4096)


def test_another_major_version_is_an_error() -> None:
    broken(patched(GOOD, len(GOOD) - 1, b"\x02"), "major version 2")


@pytest.mark.parametrize(("codec", "name"), [(0, "lzo"), (3, "snappy"), (4, "lz4"), (6, "zstd")])
def test_other_codecs_are_refused_by_name(codec: int, name: str) -> None:
    at = GOOD.rindex(b"\x60\x02")
    with pytest.raises(FormatError, match=name):
        HFile(patched(GOOD, at + 1, bytes([codec])), path="t")


def test_an_unknown_codec_is_an_error() -> None:
    broken(patched(GOOD, GOOD.rindex(b"\x60\x02") + 1, b"\x09"), "codec 9")


def test_a_wrong_block_magic_is_an_error() -> None:
    second = GOOD.index(b"DATABLK*", 1)
    broken(patched(GOOD, second, b"DATABLKE"), "not a DATABLK", offset=second)


@pytest.mark.parametrize(
    ("field", "value", "match"),
    [
        (8, 1 << 20, "behind its section"),
        (8, 500, "index entry"),
        (8, -5, "bad sizes"),
        (12, 7, "another size than declared"),
        (24, 3 << 24, "unknown checksum"),
        (29, 12, "bad sizes"),
        (29, 40, "no place"),
    ],
)
def test_wrong_sizes_in_a_header_are_errors(field: int, value: int, match: str) -> None:
    data = patched(UNSUMMED, field, struct.pack(">I", value % (1 << 32)))
    broken(data, match, offset=0)


def test_a_flipped_bit_is_found_by_its_checksum() -> None:
    broken(patched(GOOD, 60, bytes([GOOD[60] ^ 1])), "checksum", offset=0)
    summed = build(CELLS, builder.CRC32, block_size=400)  # and compressed, so gzip notices first
    broken(patched(summed, 60, bytes([summed[60] ^ 1])), "inflated", offset=0)
    unverified = HFile(patched(GOOD, 60, bytes([GOOD[60] ^ 1])), path="t", verify=False)
    assert len(unverified.keys()) == len(CELLS)


@pytest.mark.parametrize("size", [300, 100_000])
def test_cells_that_do_not_end_with_their_block_are_errors(size: int) -> None:
    data = build(some_cells(2000), HBASE_PLAIN_NO_SUMS, block_size=size)
    second = data.index(b"DATABLK*", 1) if size == 300 else 0
    for value in (1 << 20, -1):
        long = patched(data, second + 33 + 4, struct.pack(">i", value))
        broken(long, "do not end", offset=second)
    broken(patched(data, second + 33, struct.pack(">i", 1)), "do not end", offset=second)
    broken(patched(data, second + 33 + 8, b"\xff\xff"), "do not end", offset=second)


@pytest.mark.parametrize("size", [300, 100_000])
def test_a_cell_with_a_version_is_an_error(size: int) -> None:
    data = build(
        [(f"{i:04}".encode(), b"") for i in range(1000)], HBASE_PLAIN_NO_SUMS, block_size=size
    )
    broken(patched(data, 33 + 8 + 4 + 12, b"\x01"), "version number", offset=0)


def test_another_number_of_cells_than_the_trailer_says_is_an_error() -> None:
    broken(build(CELLS, entry_count=61), f"{len(CELLS)} cells instead of 61")
    broken(build([], entry_count=1), "0 cells instead of 1")


def test_a_compressed_block_that_is_no_gzip_or_has_another_length_is_an_error() -> None:
    unsummed = Producer("gz", checksum=0)
    data = build(CELLS, unsummed, block_size=400)
    broken(patched(data, 33, b"\x00\x00"), "inflated", offset=0)
    size = struct.unpack(">i", data[12:16])[0]
    for other in (size - 1, size + 1):
        broken(patched(data, 12, struct.pack(">i", other)), "does not inflate", offset=0)
    broken(patched(data, 12, struct.pack(">i", 2**31 - 1)), "cannot hold", offset=0)


def test_index_entries_that_overlap_or_leave_the_data_are_errors() -> None:
    root = UNSUMMED.index(b"IDXROOT2") + 33
    broken(patched(UNSUMMED, root, struct.pack(">q", 2**40)), "overlap|outside|behind")
    broken(patched(UNSUMMED, root, struct.pack(">q", -1)), "overlap")
    second = root + 12 + 1 + UNSUMMED[root + 12]
    broken(patched(UNSUMMED, second, struct.pack(">q", 0)), "overlap")
    broken(patched(UNSUMMED, root + 8, struct.pack(">i", 5)), "overlap")


def test_index_keys_out_of_order_or_cut_short_are_errors() -> None:
    root = UNSUMMED.index(b"IDXROOT2") + 33
    broken(patched(UNSUMMED, root + 12 + 1 + 2, b"zzz"), "not ascending")
    broken(patched(UNSUMMED, root + 12, b"\x01"), "key|fit|index")
    broken(patched(UNSUMMED, root + 12, b"\x88\x7f"), "behind|index")


def test_an_index_that_names_one_leaf_again_and_again_is_refused() -> None:
    data = bytearray(build(CELLS, HBASE_PLAIN_NO_SUMS, block_size=400, levels=2))
    root = data.index(b"IDXROOT2") + 33
    step = 12 + 1 + data[root + 12]
    data[root + step : root + step + 12] = data[root : root + 12]
    broken(bytes(data), "overlap")


@pytest.mark.parametrize("count", [-1, 0, 2**30])
def test_a_node_with_an_impossible_count_is_an_error(count: int) -> None:
    data = build(CELLS, HBASE_PLAIN_NO_SUMS, block_size=400, levels=2)
    leaf = data.index(b"IDXLEAF2") + 33
    broken(patched(data, leaf, struct.pack(">i", count)), "too short|instead of")


def test_a_trailer_that_points_outside_or_lacks_a_field_is_an_error() -> None:
    at = len(UNSUMMED) - 4096
    broken(patched(UNSUMMED, at + 9, b"\x08\xff\x7f"), "outside")
    broken(patched(UNSUMMED, at + 8, b"\x00"), "no usable field")
    broken(patched(UNSUMMED, at + 8, b"\xff\xff\xff"), "longer|number")


def test_file_info_must_be_a_whole_message() -> None:
    site = Site("t")
    for payload in (b"XXXX", b"PBUF\x05", b"PBUF\x02\x0b\x00", b"PBUF\x02\x0a\x09", b"PBUF\xff"):
        with pytest.raises(CorruptFileError):
            parse_file_info(memoryview(payload), site, 0)
    odd = b"PBUF" + builder.varint(16) + b"\x15abcd\x11abcdefgh\x18\x01"
    assert parse_file_info(memoryview(odd), site, 0) == {}


def test_mutated_files_give_a_result_or_an_error() -> None:
    rng = random.Random(5)
    seeds = [
        build(some_cells(40), by, block_size=300, levels=levels, meta={"bloomFilter": b"x" * 99})
        for by in (Producer("n", checksum=0), HBASE_PLAIN_NO_SUMS, builder.NATIVE_EARLY)
        for levels in (1, 2, 3)
    ]
    seeds.append(build(some_cells(900), HBASE_PLAIN_NO_SUMS, block_size=200))
    survived = 0
    for _ in range(1000):
        seed = rng.choice(seeds)
        data = bytearray(seed)
        used = len(data) - 3900
        for _ in range(rng.choice((1, 1, 2, 5))):
            at = rng.randrange(used) if rng.random() < 0.8 else len(data) - 1 - rng.randrange(4)
            data[at] = rng.choice((rng.randrange(256), 0, 255, data[at] ^ 1))
        if rng.random() < 0.05:
            cut = rng.randrange(used)
            del data[cut : cut + rng.randrange(1, 50)]
        try:
            file = HFile(bytes(data), path="t")
            keys, values = file.cells()
            file.lookup([b"key-5", *keys.to_pylist()[:3]])
            file.prefix(b"key-1")
            file.meta_block("bloomFilter")
        except FormatError:
            continue
        survived += 1
        assert len(keys) == len(values) == file.entry_count
    assert 0 < survived < 1000


def test_a_file_that_inflates_hugely_is_bounded_by_what_gzip_can_hold() -> None:
    bomb = build([(b"k", bytes(8 << 20))], Producer("gz", checksum=0), block_size=1)
    assert len(bomb) < 20_000
    declared = patched(bomb, 12, struct.pack(">i", 1 << 30))
    broken(declared, "cannot hold")


TABLES = [
    t
    for t in shared_tables()
    if t.zip
    in (
        "mor_v6_comprehensive_types.zip",
        "mor_v8_trips_8i3u1d.zip",
        "mor_v9_complex_meta.zip",
        "cow_v9_lance_refuse.zip",
    )
]


@pytest.mark.skipif(not TABLES, reason=SHARED_ABSENT)
@pytest.mark.parametrize("table", TABLES, ids=lambda t: t.id)
def test_real_base_files_are_read_whole_and_by_key(table: SharedTable, tmp_path: Path) -> None:
    files = sorted((unpack(table, tmp_path) / ".hoodie" / "metadata").rglob("*.hfile"))
    assert files
    for path in files:
        file = HFile(path.read_bytes(), path=path.name)
        keys, values = file.cells()
        rows = keys.to_pylist()
        assert rows == sorted(rows) and len(rows) == file.entry_count
        assert file.lookup(keys).equals(values)
        assert b"HoodieMetadataRecord" in file.file_info["schema"]
        if rows:
            assert bisect_left(rows, file.file_info["minRecordKey"]) == 0
            assert rows[-1] == file.file_info["maxRecordKey"]
