"""HFiles that few tables have, as seeds: plain, deep, of many blocks, of every checksum.

`python -m tests.fuzz.hfile_seeds` writes them again; a test holds that they are what is made here.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

from tests.codec.hfile_builder import CRC32, HBASE, HBASE_PLAIN, NATIVE_EARLY, Producer, build

ARCHIVE = Path(__file__).parent / "seeds" / "hfiles.zip"

_PLAIN = Producer("plain", gz=False, checksum=0)
_BARE = Producer("bare", gz=False, checksum=0, checksum_bytes=False, cell_suffix=False)


def made() -> dict[str, bytes]:
    """Small HFiles by name."""
    few = [(f"key-{n:02}".encode(), bytes([n]) * (n % 5)) for n in range(12)]
    many = [(f"k{n:03}".encode(), b"v") for n in range(80)]
    return {
        "plain.hfile": build(few, _PLAIN),
        "plain-meta.hfile": build(few, _PLAIN, meta={"bloomFilter": b"bits", "x": b""}),
        "plain-2-levels.hfile": build(few, _PLAIN, block_size=60, levels=2),
        "plain-4-levels.hfile": build(few, _PLAIN, block_size=60, levels=4, fanout=2),
        "plain-many-blocks.hfile": build(many, _BARE, block_size=50),
        "plain-one-block.hfile": build(many, _BARE, block_size=1 << 20),
        "plain-summed.hfile": build(few, HBASE_PLAIN, block_size=60),
        "crc32.hfile": build(few, CRC32, block_size=100),
        "gzip-2-levels.hfile": build(few, HBASE, block_size=60, levels=2),
        "early.hfile": build(few, NATIVE_EARLY),
        "empty.hfile": build([], _PLAIN),
    }


def main() -> None:
    """Write the archive."""
    ARCHIVE.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(ARCHIVE, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in made().items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    main()
