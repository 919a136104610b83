"""Kill a commit that also changes the metadata table before every change of a file; both go on.

    python -m interop.index_kills [--stride 1] [--only 'v8_*']

A table with all indexes, an upsert of changed and new rows, and a process that dies just before
change number 0, 1, 2, … of a file. Each time a reader must see exactly the rows before or after
the upsert, with the metadata table and without; the next writer of ours must go on without help,
and leave a metadata table that says what the files say. Wherever the dead process has left other
files than the time before (its temporary files aside), Hudi must read the same rows through the
metadata table, and its next write must do the repair as well: judged by its own
`validate_metadata_table_files` and by our verification. Then we write once more.

Ends with a line `N passed, M failed` and status 1 if anything failed.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

import lakewright as lw
from interop.hudi import Hudi, HudiRefusedError
from interop.kill_hudi import NAME, NextHudi
from interop.kill_process import write_in_process
from interop.kill_trials import (
    SEEN,
    Kind,
    Stage,
    copy_table,
    judge_next_writer,
    judge_reader,
    make_stage,
    stored_rows,
)
from interop.metadata_differences import our_differences, their_differences
from lakewright.engine.listing import UNSIZED
from lakewright.metadata.file_groups import FILES
from lakewright.metadata.verification import Difference

OPERATION = "upsert"
OLD_HUDI = "0.15.0"
TABLES = (
    (Kind(6, "cow", indexed=True), OLD_HUDI),
    (Kind(6, "mor", indexed=True), OLD_HUDI),
    (Kind(6, "mor", indexed=True), "1.0.2"),
    (Kind(8, "cow", indexed=True), "1.0.2"),
    (Kind(8, "mor", indexed=True), "1.0.2"),
)
"""Each with the Hudi that goes on with it."""
CHOSEN_ANEW = re.compile(r"\d{17}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d+-\d+-\d+")
"""Times, file groups and write tokens: every process chooses its own."""
TOLD_EVERY = 50
TEMPORARY = ".lakewright-tmp"
WITHOUT = lw.ReadOptions(use_metadata_table=False)


@dataclass
class Deaths:
    """One table, all deaths of a process that writes it, and what came out."""

    stage: Stage
    next_hudi: NextHudi
    folder: Path
    known: frozenset[str]
    """Times, file groups and write tokens from before the upsert."""
    met: set[tuple[str, ...]] = field(default_factory=set)
    outcomes: Counter[str] = field(default_factory=Counter)

    def run(self, stride: int) -> None:
        """Die everywhere."""
        started = time.monotonic()
        for number in range(0, self.stage.changes, stride):
            try:
                wrong = self._die(number)
            except HudiRefusedError as error:
                wrong = [f"Hudi fails: {error}"]
            self.outcomes["failed" if wrong else "passed"] += 1
            for told in wrong:
                print(f"FAILED {self._name}, killed at change {number}: {told}", flush=True)
            if (number // stride + 1) % TOLD_EVERY == 0 or number + stride >= self.stage.changes:
                where = f"{number + 1} of {self.stage.changes}"
                seconds = time.monotonic() - started
                told = dict(self.outcomes)
                print(f"{self._name}, change {where}: {told}, {seconds:.0f} s", flush=True)

    @property
    def _name(self) -> str:
        return f"{self.stage.kind}, {self.next_hudi.hudi.version}"

    def _die(self, number: int) -> list[str]:
        path, dead = self.folder / "trial", self.folder / "dead"
        copy_table(self.stage.path, path)
        ended = write_in_process(path, OPERATION, kill_at=number)
        self.outcomes["killed" if ended.killed else "ended by itself"] += 1
        copy_table(path, dead)
        seen = judge_reader(self.stage, path)
        self.outcomes[f"rows {seen}"] += 1
        if seen not in SEEN:
            return [seen]
        expected = self.stage.rows(seen)
        wrong = [] if stored_rows(path, WITHOUT) == expected else ["other rows without indexes"]
        wrong += judge_next_writer(path, expected) + _unindexed("lakewright", path)
        left = self._left(dead)
        if left not in self.met:
            self.met.add(left)
            self.outcomes["Hudi next"] += 1
            wrong += self._hudi_goes_on(dead, seen)
        return wrong

    def _hudi_goes_on(self, path: Path, seen: str) -> list[str]:
        """What is wrong after Hudi's next write, and after ours behind it."""
        kind, expected = self.stage.kind, self.stage.rows(seen)
        if (found := self.next_hudi.rows(path)) != expected:
            return [f"Hudi reads {found}"]
        expected = self.next_hudi.write(path, kind, expected)
        told = their_differences(self.next_hudi.hudi, path, NAME)
        wrong = [f"after Hudi's write, by Hudi: {told}"] if told else []
        wrong += _unindexed(self.next_hudi.hudi.version, path)
        if (found := self.next_hudi.rows(path)) != expected:
            wrong.append(f"Hudi reads {found} after its write")
        wrong += judge_next_writer(path, expected, lock="file")
        return wrong + _unindexed(self.next_hudi.hudi.version, path)

    def _left(self, path: Path) -> tuple[str, ...]:
        """The names of all files, without what every process chooses anew."""
        files = (f for f in path.rglob("*") if f.is_file() and TEMPORARY not in f.name)
        names = (str(f.relative_to(path)) for f in files)
        return tuple(sorted(CHOSEN_ANEW.sub(self._plain, name) for name in names))

    def _plain(self, found: re.Match[str]) -> str:
        return found[0] if found[0] in self.known else "new"


def _unindexed(writer: str, path: Path) -> list[str]:
    """What the metadata table says otherwise than the files after a write."""
    known = _is_unsized if writer == OLD_HUDI else _is_nothing
    told = our_differences(lw.Table.open(path), known)
    return [f"after the write of {writer}: {told}"] if told else []


def _is_nothing(_: Difference) -> bool:
    return False


def _is_unsized(found: Difference) -> bool:
    """Hudi 0.x lists the logs of the writes that it rolls back by their names, with a size of 1,
    and even those that were not made yet; readers ask the folder about these."""
    told = found.to_dict().get("found") or {}
    return found.index == FILES and ".log." in found.key and told.get("size") == UNSIZED


def make_deaths(kind: Kind, hudi: Hudi, folder: Path) -> Deaths:
    """A table to die on."""
    stage = make_stage(folder, kind, OPERATION)
    known = (CHOSEN_ANEW.findall(str(file)) for file in stage.path.rglob("*"))
    following = NextHudi(hudi, folder)
    return Deaths(stage, following, folder, frozenset(n for names in known for n in names))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(prog="interop.index_kills", description=__doc__.split("\n")[0])
    parser.add_argument("--stride", type=int, default=1, help="die before every so manieth change")
    parser.add_argument("--only", default="*", help="a pattern of tables, such as v8_mor_indexed")
    options = parser.parse_args(arguments)
    home = Path(tempfile.mkdtemp(prefix="lakewright-index-kills-"))
    chosen = [(kind, version) for kind, version in TABLES if fnmatchcase(str(kind), options.only)]
    hudis = {version: Hudi(version) for _, version in chosen}
    started = time.monotonic()
    outcomes: Counter[str] = Counter()

    def lane(version: str) -> None:
        for kind in (kind for kind, owner in chosen if owner == version):
            folder = home / version / str(kind)
            folder.mkdir(parents=True)
            deaths = make_deaths(kind, hudis[version], folder)
            deaths.run(options.stride)
            outcomes.update(deaths.outcomes)

    try:
        with ThreadPoolExecutor(len(hudis)) as pool:
            list(pool.map(lane, hudis))
    finally:
        for hudi in hudis.values():
            hudi.close()
        shutil.rmtree(home)
    seconds = time.monotonic() - started
    print(f"{dict(outcomes)}, {seconds:.0f} s")
    print(f"{outcomes['passed']} passed, {outcomes['failed']} failed")
    return 1 if outcomes["failed"] or not outcomes["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
