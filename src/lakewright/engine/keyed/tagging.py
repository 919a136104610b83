"""Tagging: for every key of a write the file groups and rows that have it.

Keys are asked for within their partitions, or in the whole table. All files of all partitions are
one list of work, so that many small partitions keep all threads busy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakewright.engine.keyed.incoming import IncomingRows, codes_by_partition
from lakewright.engine.keyed.lookup import Hits, Int32s, KeyLookup
from lakewright.engine.keyed.record_places import codes_by_place
from lakewright.engine.runner import Runner
from lakewright.format.file_slices import BaseFile
from lakewright.format.key_spec import KeySpec
from lakewright.merge.columns import Int64s
from lakewright.storage.base import Storage

__all__ = ["tag"]


@dataclass(frozen=True, slots=True, eq=False)
class _Question:
    lookup: KeyLookup
    codes: Int64s | None
    """Numbers of the keys in the write; None if they are all of them, in order."""
    number: int
    base: BaseFile

    def answer(self) -> Iterator[Hits]:
        for hits in self.lookup.in_file(self.number, self.base):
            if self.codes is None:
                yield hits
            else:
                yield Hits(self.codes[hits.codes].astype(np.int32), hits.files, hits.positions)


def tag(
    storage: Storage,
    incoming: IncomingRows,
    files: Sequence[BaseFile],
    *,
    runner: Runner,
    within_partition: bool,
    filters: bool = False,
    spec: KeySpec | None = None,
    places: Int32s | None = None,
) -> Hits:
    """Look for all keys in the files that may have them; `Hits.files` number `files`.

    With `places` each key is looked for in that file alone.
    """
    by_partition: dict[str, list[int]] = {}
    for number, base in enumerate(files):
        by_partition.setdefault(base.partition, []).append(number)

    def lookup(keys: pa.Array) -> KeyLookup:
        return KeyLookup(storage, keys, spec=spec, filters=filters)

    questions: list[_Question] = []
    if places is not None:
        for number, codes in codes_by_place(places).items():
            if number < len(files):
                here = lookup(incoming.keys.take(pa.array(codes)))
                questions.append(_Question(here, codes, number, files[number]))
    elif not within_partition:
        everywhere = lookup(incoming.keys)
        questions = [_Question(everywhere, None, n, base) for n, base in enumerate(files)]
    else:
        for partition, codes in codes_by_partition(incoming).items():
            numbers = by_partition.get(partition)
            if numbers:
                here = lookup(incoming.keys.take(pa.array(codes)))
                questions += [_Question(here, codes, n, files[n]) for n in numbers]
    questions = [q for q in questions if len(q.lookup)]
    questions.sort(key=lambda q: -q.base.size)
    return Hits.joined(list(runner.stream(questions, _Question.answer)))
