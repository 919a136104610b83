"""The HFiles of real metadata tables: base files, and those inside of log blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lakewright.codec.hfile import HFile
from lakewright.format.log_block import BlockType, read_blocks

HBASE_MINOR_VERSION = 3


@dataclass(frozen=True)
class RealHFile:
    """One HFile; `schema` is the one that its records were written with."""

    path: Path
    index: str
    data: bytes
    file: HFile
    schema: str
    in_log: bool

    @property
    def by_hbase(self) -> bool:
        """Whether HBase wrote it, and not Hudi's own writer."""
        return self.file.trailer.minor_version == HBASE_MINOR_VERSION


def hfiles_below(table: Path) -> Iterator[RealHFile]:
    """All HFiles of a table's metadata table."""
    folder = table / ".hoodie" / "metadata"
    for path in sorted(folder.glob("*/*.hfile")):
        data = path.read_bytes()
        file = HFile(data, path=path.name)
        schema = file.file_info["schema"].decode()
        yield RealHFile(path, path.parent.name, data, file, schema, False)
    for path in sorted(folder.glob("*/.*.log.*")):
        if path.suffix == ".crc" or path.parent.name == ".hoodie":
            continue
        for block in read_blocks(path.read_bytes(), path=path.name):
            if block.type is BlockType.HFILE_DATA:
                data = bytes(block.content)
                file = HFile(data, path=path.name)
                yield RealHFile(path, path.parent.name, data, file, block.schema, True)
