"""Let HBase's reader and Hudi's own read HFiles that lakewright wrote, whole and by key.

    python -m interop.hfiles

HBase's reader comes from the bundles of Hudi 0.15.0 and 1.0.2, Hudi's from those and 1.2.0. Files
are of both codecs, with blocks of every size that is allowed, cells shorter and longer than blocks,
keys beyond ASCII, and none. Every cell must come back, every key that is asked must be found, and
none that is not there. Needs `scripts/hudi_env.py` to have run. Prints one line per reader; the
exit status is 1 if any reader disagreed.
"""

from __future__ import annotations

import hashlib
import random
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa

from interop.hudi import JARS, ROOT
from lakewright.codec.bloom import BloomFilter
from lakewright.codec.hfile import HFilePolicy, encode_hfile
from lakewright.codec.hfile.writer import BLOCK_BYTES_MAX
from lakewright.format.version import TableVersion
from lakewright.metadata.payloads import record_index_records
from lakewright.metadata.record_schema import written_schema

READERS = (
    ("HFileHBase", "0.15.0"),
    ("HFileNative", "0.15.0"),
    ("HFileHBase", "1.0.2"),
    ("HFileNative", "1.0.2"),
    ("HFileNative", "1.2.0"),
)
OPENED = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
)
Cells = list[tuple[bytes, bytes]]


def main() -> int:
    """Write the files and compare what each reader says."""
    with tempfile.TemporaryDirectory() as folder:
        files, expected = _written(Path(folder))
        failed = 0
        for program, version in READERS:
            told = _read(program, version, files)
            wrong = [f.name for f, a, b in zip(files, told, expected, strict=True) if a != b]
            print(f"{program} {version}: {len(files) - len(wrong)} of {len(files)} files", *wrong)
            failed += len(wrong)
    return 1 if failed else 0


def _written(folder: Path) -> tuple[list[Path], list[str]]:
    files, expected = [], []
    for name, cells in _cells().items():
        keys, values = (pa.array([c[i] for c in cells], pa.binary()) for i in (0, 1))
        for number, policy in enumerate(_policies()):
            bloom = BloomFilter.build(keys).encode().encode() if number == 0 else None
            data = encode_hfile(
                keys,
                values,
                info={"schema": written_schema(TableVersion.of(8)).encode()},
                meta={} if bloom is None else {"bloomFilter": bloom},
                policy=policy,
            )
            path = folder / f"{name}-{number}.hfile"
            path.write_bytes(data)
            asked = _asked(cells)
            Path(f"{path}.keys").write_bytes(b"".join(map(_counted, asked)))
            content = dict(cells)
            found = [(k, content[k]) for k in asked if k in content]
            files.append(path)
            expected.append(f"{len(cells)} {_digest(cells)} {len(found)} {_digest(found)}")
    return files, expected


def _policies() -> Iterable[HFilePolicy]:
    yield HFilePolicy()
    yield HFilePolicy(codec="none")
    yield HFilePolicy(codec="none", block_bytes=BLOCK_BYTES_MAX)
    yield HFilePolicy(level=0, block_bytes=BLOCK_BYTES_MAX)
    yield HFilePolicy(level=1, block_bytes=1000)


def _cells() -> dict[str, Cells]:
    rng = random.Random(11)
    numbered = [f"{n:06}".encode() for n in range(30_000)]
    texts = {"".join(rng.choices("aÿü€😀\ufffd~", k=rng.randrange(1, 9))) for _ in range(3000)}
    return {
        "none": [],
        "one": [(b"__all_partitions__", b"x")],
        "short": [(key[-1:] if n == 0 else key, b"") for n, key in enumerate(numbered)],
        "mixed": [(key, rng.randbytes(rng.choice((0, 1, 90)))) for key in numbered],
        "large": [(key, rng.randbytes(rng.choice((3, 70_000, 200_000)))) for key in numbered[:60]],
        "texts": [(text.encode(), text.encode()) for text in sorted(texts, key=str.encode)],
        "record-index": _record_index(),
    }


def _record_index() -> Cells:
    count = 40_000
    keys = sorted(f"{hashlib.md5(str(n).encode()).hexdigest()}" for n in range(count))
    columns = {
        "key": keys,
        "partition": ["city=sf"] * count,
        "file_id": [f"036ded81-9ed4-479f-bcea-7145dfa0{n % 20:04}-0" for n in range(count)],
        "instant_ms": pa.array([1766264468078] * count, pa.int64()),
    }
    records = record_index_records(pa.table(columns), version=TableVersion.of(8))
    return list(zip(records.keys.to_pylist(), records.values.to_pylist(), strict=True))


def _asked(cells: Cells) -> list[bytes]:
    """Some keys that are there and neighbours that are not, ascending: readers go forward only."""
    some = [key for key, _ in cells[:: max(1, len(cells) // 500)]]
    ends = [key for key, _ in cells[-1:]]
    return sorted({*some, *ends, *(key + b"!" for key in some), b" ", b"zzz"})


def _digest(cells: Cells) -> str:
    parts = (_counted(part) for cell in cells for part in cell)
    return hashlib.sha256(b"".join(parts)).hexdigest()


def _counted(part: bytes) -> bytes:
    return struct.pack(">i", len(part)) + part


def _read(program: str, version: str, files: Sequence[Path]) -> list[str]:
    spark = next((ROOT / ".venv-hudi").glob("lib/python*/site-packages/pyspark/jars"))
    jar = JARS / f"hudi-spark3.5-bundle_2.12-{version}.jar"
    source = Path(__file__).with_name(f"{program}.java")
    command = ["java", "-XX:TieredStopAtLevel=1", *OPENED, "-cp", f"{jar}:{spark}/*", str(source)]
    done = subprocess.run([*command, *map(str, files)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{program} of Hudi {version} failed:\n{done.stderr[-4000:]}")
    return done.stdout.splitlines()


if __name__ == "__main__":
    sys.exit(main())
