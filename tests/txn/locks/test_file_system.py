"""The file-system lock: Hudi's file, our token, takeover, and what Hudi's own writers do to it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lakewright.errors import LockLostError, OptionError
from lakewright.runtime import Event, ManualClock, SystemRandom
from lakewright.storage import LocalStorage, MemoryBucket, MemoryStorage
from lakewright.storage.faults import FaultPlan, unavailable, unknown_outcome
from lakewright.txn.locks.file_system import FileSystemLock
from lakewright.txn.locks.protocol import LockHolder, LockProvider
from tests.txn.locks.contention import (
    HastyClock,
    IdleSpawner,
    Machine,
    busy,
    chance,
    eventually,
    obtained,
)

PATH = ".hoodie/lock"
HUDI = json.dumps(
    {"lockCreateTime": "2024-01-30 10:00:00.000", "lockThreadName": "main", "lockStacksInfo": []}
).encode()


class Folder:
    """A table folder and its locks, each of a process of its own."""

    def __init__(self, root: Path) -> None:
        # Files are dated by the kernel, so the clock must begin where the kernel is.
        self.clock = ManualClock()
        self.storage = LocalStorage(root, clock=self.clock)
        self.file = root / ".hoodie" / "lock"
        self.machine = Machine()
        self.events: list[Event] = []

    def lock(self, pid: int, expire_s: float = 0.0, clock: ManualClock | None = None):
        """The lock as one process has it."""
        return FileSystemLock(
            self.storage,
            expire_s=expire_s,
            clock=clock or self.clock,
            random=chance(pid),
            spawner=IdleSpawner(),
            processes=self.machine.process(pid),
            on_event=self.events.append,
        )

    def age(self, seconds: float) -> None:
        """Make the lock file look so old."""
        self.storage.set_modified(PATH, self.clock.now_ms() - int(seconds * 1000))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_the_file_has_hudis_fields_and_tells_others_who_holds_it(folder: Folder) -> None:
    lease = obtained(folder.lock(1).try_acquire("commit of 20240130"))
    content = json.loads(folder.file.read_text())
    assert content["lockThreadName"] == "commit of 20240130"
    assert content["lockCreateTime"] == "2023-11-14 22:13:20.000"
    assert content["lockStacksInfo"] == []
    holder = busy(folder.lock(2).try_acquire("another"))
    assert holder.who == "commit of 20240130, process 1 on here"
    assert holder.since_ms == 1_700_000_000_000 and holder.expires_ms is None
    assert "delete the file" in holder.if_dead
    lease.release()
    assert not folder.file.exists()


def test_a_lock_of_hudi_is_respected_until_it_expires(folder: Folder) -> None:
    folder.storage.create_if_absent(PATH, HUDI)
    folder.age(59)
    holder = busy(folder.lock(1, expire_s=60).try_acquire("me"))
    assert holder.who == "thread 'main' of a Hudi process"
    assert holder.expires_ms == folder.clock.now_ms() + 1000
    folder.age(86400)
    busy(folder.lock(1).try_acquire("me"))
    obtained(folder.lock(1, expire_s=60).try_acquire("me")).check()
    assert [event.kind for event in folder.events] == ["lock.takeover.expired"]


def test_a_lock_file_that_hudi_is_still_writing_is_held_and_nobodys_after_a_minute(
    folder: Folder,
) -> None:
    for content in (b"", HUDI[:20], b"[]"):
        folder.storage.replace(PATH, content)
        folder.age(59)
        assert "began to write it" in busy(folder.lock(1).try_acquire("me")).who
        folder.age(61)
        obtained(folder.lock(1).try_acquire("me")).check()
    assert {event.kind for event in folder.events} == {"lock.takeover.unfinished"}


def test_a_finished_lock_file_of_another_shape_is_held_for_ever(folder: Folder) -> None:
    for content in (b'{"lockThreadName": 1, "lakewright": 5}', HUDI):
        folder.storage.replace(PATH, content)
        folder.age(86400)
        assert "Hudi process" in busy(folder.lock(1).try_acquire("me")).who


def test_a_dead_process_of_this_machine_is_succeeded_at_once_and_that_is_told(
    folder: Folder,
) -> None:
    folder.lock(1).try_acquire("the dead")
    busy(folder.lock(2).try_acquire("me"))
    folder.machine.dead.add(1)
    obtained(folder.lock(2).try_acquire("me")).check()
    assert [event.kind for event in folder.events] == ["lock.takeover.dead"]
    assert "the dead" in str(folder.events[0].path)


def test_what_is_not_ours_is_never_freed(folder: Folder) -> None:
    lease = obtained(folder.lock(1, expire_s=60).try_acquire("slow"))
    folder.age(61)
    folder.clock.advance(61)
    folder.storage.set_modified(PATH, folder.clock.now_ms() - 61_000)
    other = obtained(folder.lock(2, expire_s=60).try_acquire("quick"))
    with pytest.raises(LockLostError):
        lease.check()
    lease.release()
    other.check()
    other.release()
    assert not folder.file.exists()


def test_an_overdue_lease_leaves_its_file_to_expire(folder: Folder) -> None:
    lease = obtained(folder.lock(1, expire_s=60).try_acquire("slow"))
    folder.clock.advance(50)
    with pytest.raises(LockLostError, match="not renewed in time"):
        lease.check()
    lease.release()
    assert folder.file.exists(), "a waiter may be taking it over at this moment"


class Pausing(LocalStorage):
    """A folder whose next read of a file is followed by something."""

    deed = staticmethod(lambda: None)

    def read(self, path: str) -> bytes:
        """Read, and let it happen once."""
        content = super().read(path)
        deed, self.deed = self.deed, lambda: None
        deed()
        return content


def test_who_stands_still_while_giving_a_lock_back_does_not_free_its_successors(
    folder: Folder, tmp_path: Path
) -> None:
    storage = Pausing(tmp_path, clock=folder.clock)
    lock = FileSystemLock(
        storage,
        expire_s=60,
        clock=folder.clock,
        random=chance(1),
        spawner=IdleSpawner(),
        processes=folder.machine.process(1),
    )
    lease = obtained(lock.try_acquire("slow"))
    others = []

    def overtake() -> None:
        folder.clock.advance(61)
        folder.age(61)
        others.append(obtained(folder.lock(2, expire_s=60).try_acquire("quick")))

    storage.deed = overtake
    lease.release()
    others[0].check()


def test_a_removed_lock_is_noticed_before_anything_is_published(folder: Folder) -> None:
    lease = obtained(folder.lock(1).try_acquire("me"))
    lease.check()
    folder.file.unlink()
    with pytest.raises(LockLostError, match="took it or removed it"):
        lease.check()
    folder.storage.create_if_absent(PATH, HUDI)
    lease.release()
    assert folder.file.read_bytes() == HUDI


def test_renewal_dates_the_file_anew_and_stops_when_the_lock_is_lost(folder: Folder) -> None:
    lease = obtained(folder.lock(1, expire_s=60).try_acquire("long"))
    for _ in range(10):
        folder.clock.advance(20)
        assert lease.renew()
        assert folder.storage.stat(PATH).modified_ms == folder.clock.now_ms()
        busy(folder.lock(2, expire_s=60).try_acquire("waiting"))
        lease.check()
    folder.storage.replace(PATH, HUDI)
    dated = folder.storage.stat(PATH).modified_ms
    assert not lease.renew()
    assert folder.storage.stat(PATH).modified_ms == dated


class Interfering(ManualClock):
    """Something that another program does while we let a new lock settle."""

    def __init__(self, deed) -> None:
        super().__init__()
        self._deed = deed

    def sleep(self, seconds: float) -> None:
        """Let it happen."""
        super().sleep(seconds)
        self._deed()


def test_a_new_lock_that_hudi_overwrites_or_deletes_at_once_is_not_ours(folder: Folder) -> None:
    overwritten = Interfering(lambda: folder.file.write_bytes(HUDI))
    assert "Hudi" in busy(folder.lock(1, clock=overwritten).try_acquire("me")).who
    folder.file.unlink()
    deleted = Interfering(lambda: folder.file.unlink())
    assert "released" in busy(folder.lock(1, clock=deleted).try_acquire("me")).who
    obtained(folder.lock(1).try_acquire("me")).check()


def test_locks_in_a_bucket_are_marked_as_given_back_instead_of_deleted() -> None:
    clock = ManualClock()
    bucket = MemoryBucket(clock=clock)

    def lock() -> FileSystemLock:
        return FileSystemLock(
            MemoryStorage(bucket), clock=clock, random=SystemRandom(), spawner=IdleSpawner()
        )

    first = obtained(lock().try_acquire("first"))
    busy(lock().try_acquire("second"))
    first.release()
    second = obtained(lock().try_acquire("second"))
    first.release()
    second.check()


@pytest.mark.parametrize("effect", [True, False])
@pytest.mark.parametrize("at", range(8))
@pytest.mark.parametrize("make", [unknown_outcome, unavailable])
def test_lost_answers_never_block_the_lock_for_its_own_process(make, at: int, effect: bool) -> None:
    clock = ManualClock()
    bucket = MemoryBucket(clock=clock)
    faulty = MemoryStorage(bucket, faults=FaultPlan({at: make(effect=effect)}))
    machine = Machine()

    def lock(storage: MemoryStorage, pid: int) -> LockProvider:
        return FileSystemLock(
            storage,
            clock=clock,
            random=chance(pid),
            spawner=IdleSpawner(),
            processes=machine.process(pid),
        )

    mine, other = lock(faulty, 1), lock(MemoryStorage(bucket), 2)
    held = obtained(eventually(lambda: mine.try_acquire("me")))
    busy(other.try_acquire("other"))
    eventually(held.release)
    obtained(other.try_acquire("other")).check()


def test_a_negative_expiry_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError):
        FileSystemLock(LocalStorage(tmp_path), expire_s=-1)


PROGRAM = """
import os, sys
from lakewright.storage import LocalStorage
from lakewright.runtime import SystemClock, SystemRandom
from lakewright.txn.locks import acquire, lock_from
root, rounds, deeds = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
counter = root + "/counter"

def count(deed):
    for number in range(rounds):
        lock = lock_from(deed if deed.startswith("sqlite") else "file", LocalStorage(root))
        lease = acquire(lock, "count", wait_s=60, clock=SystemClock(), random=SystemRandom())
        value = int(open(counter).read())
        lease.check()
        open(counter, "w").write(str(value + 1))
        if deed == "die" and number == rounds - 1:
            os._exit(9)
        lease.release()

children = []
for deed in deeds:
    child = os.fork()
    if child == 0:
        count(deed)
        os._exit(0)
    children.append(child)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
assert codes == [9 if deed == "die" else 0 for deed in deeds], codes
"""


def run_processes(root: Path, deeds: list[str], rounds: int) -> int:
    """Let real processes count in one file; what they counted."""
    counter = root / "counter"
    counter.write_text("0")
    program = [sys.executable, "-c", PROGRAM, str(root), str(rounds), *deeds]
    subprocess.run(program, check=True, timeout=120)
    return int(counter.read_text())


def test_real_processes_take_turns_and_a_killed_one_is_succeeded(tmp_path: Path) -> None:
    assert run_processes(tmp_path, ["die", "go", "go"], 3) == 9
    answer = FileSystemLock(LocalStorage(tmp_path), clock=HastyClock()).try_acquire("after")
    assert not isinstance(answer, LockHolder)
    assert [path.name for path in (tmp_path / ".hoodie").iterdir()] == ["lock"]
