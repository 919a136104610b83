"""Seeds: small real files of tables, taken from folders and zips, in a fixed order.

A corpus is read once and then only asked. Names say where a file came from, so that a recipe which
begins with one finds the same bytes again. Side files of file systems are left out.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["FILE_BYTES_MAX", "Corpus", "Seed"]

FILE_BYTES_MAX: Final = 1 << 16
_IGNORED: Final = re.compile(r"(^|/)(__MACOSX|\._[^/]*|\.DS_Store)|\.crc$|\.rows\.json$")


@dataclass(frozen=True, slots=True)
class Seed:
    """Undamaged bytes to start from."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Corpus:
    """Files by name: `<archive or folder>!<path inside>`."""

    files: Mapping[str, bytes]

    @classmethod
    def load(cls, places: Sequence[Path], *, bytes_max: int = FILE_BYTES_MAX) -> Corpus:
        """All small files of zips, of folders, and of zips in folders; absent places are empty."""
        found = (file for place in places for file in _files(place, bytes_max))
        return cls(dict(sorted(found)))

    def matching(self, pattern: str, *, limit: int, bytes_max: int = FILE_BYTES_MAX) -> list[Seed]:
        """Up to `limit` files whose path matches; the smallest of each table before the others.

        Equal contents count once.
        """
        wanted = re.compile(pattern)
        by_table: dict[str, list[Seed]] = {}
        seen: set[bytes] = set()
        for name, data in self.files.items():
            table, _, path = name.partition("!")
            if wanted.search(path) and 0 < len(data) <= bytes_max and data not in seen:
                seen.add(data)
                by_table.setdefault(table, []).append(Seed(name, data))
        ranked = [
            (rank, seed)
            for seeds in by_table.values()
            for rank, seed in enumerate(sorted(seeds, key=lambda s: (len(s.data), s.name)))
        ]
        ranked.sort(key=lambda pair: (pair[0], pair[1].name))
        return [seed for _, seed in ranked[:limit]]

    def tables(self) -> dict[str, dict[str, bytes]]:
        """Whole tables by name: the files below each folder that has a `.hoodie` folder."""
        marker = "/.hoodie/hoodie.properties"
        bases = [name[: -len(marker)] for name in self.files if name.endswith(marker)]
        outer = [b for b in bases if "/.hoodie/" not in b]
        return {
            base: {
                name[len(base) + 1 :]: data
                for name, data in self.files.items()
                if name.startswith(f"{base}/")
            }
            for base in outer
        }


def _files(place: Path, bytes_max: int) -> Iterator[tuple[str, bytes]]:
    if place.is_dir():
        for path in sorted(place.rglob("*")):
            if path.suffix == ".zip":
                yield from _zipped(path, bytes_max)
            elif path.is_file() and path.stat().st_size <= bytes_max:
                inside = path.relative_to(place).as_posix()
                if not _IGNORED.search(inside):
                    yield f"{place.name}!{inside}", path.read_bytes()
    elif place.suffix == ".zip" and place.exists():
        yield from _zipped(place, bytes_max)


def _zipped(path: Path, bytes_max: int) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if 0 < info.file_size <= bytes_max and not _IGNORED.search(info.filename):
                yield f"{path.stem}!{info.filename}", archive.read(info)
