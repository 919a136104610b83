"""What is particular about a local folder."""

from __future__ import annotations

import errno
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lakewright.errors import (
    AlreadyExistsError,
    NotFoundError,
    OutcomeUnknownError,
    PreconditionFailedError,
    StorageDeniedError,
    StorageError,
    StorageUnavailableError,
)
from lakewright.runtime import ManualClock, SeededRandom
from lakewright.storage import LocalStorage, local, local_files
from lakewright.storage.local_errors import local_error


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path / "root", random=SeededRandom(1))


def _names(storage: LocalStorage) -> set[str]:
    return {path.name for path in Path(storage.uri).iterdir()}


def test_checksum_side_files_go_before_their_file_changes(storage: LocalStorage) -> None:
    storage.make_dir("")
    root = Path(storage.uri)
    side = root / ".x.crc"
    side.write_bytes(b"old")
    storage.create_if_absent("x", b"1")
    assert not side.exists()
    for change in (
        lambda: storage.replace("x", b"2"),
        lambda: storage.replace_if_match("x", b"3", storage.stat("x").etag or ""),
        lambda: storage.delete("x"),
        lambda: storage.create_from("x", lambda sink: sink.write(b"4")),
    ):
        side.write_bytes(b"old")
        change()
        assert not side.exists()
    (root / ".y.crc").write_bytes(b"another's")
    storage.replace("x", b"5")
    assert [i.path for i in storage.list()] == [".y.crc", "x"]


def test_a_lost_create_leaves_the_winner_and_its_checksum_alone(storage: LocalStorage) -> None:
    storage.create_if_absent("x", b"1")
    side = Path(storage.uri, ".x.crc")
    side.write_bytes(b"theirs")
    with pytest.raises(AlreadyExistsError):
        storage.create_if_absent("x", b"2")
    assert side.read_bytes() == b"theirs"
    assert _names(storage) == {"x", ".x.crc"}


def test_temporary_files_are_hidden_and_removed(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RuntimeError):
        storage.create_from("x", _fail_after_looking(storage))
    assert _names(storage) == set()

    monkeypatch.setattr(local, "link_new", _die)
    with pytest.raises(KeyboardInterrupt):
        storage.create_if_absent("x", b"1")
    assert _names(storage) == set()
    left = Path(storage.uri, ".lakewright-tmp-left-by-a-crash")
    left.write_bytes(b"")
    assert storage.list() == [] and list(storage.walk()) == []
    assert storage.delete_tree("") == 0 and not left.exists()


def _fail_after_looking(storage: LocalStorage):
    def write(sink: object) -> None:
        assert len(_names(storage)) == 1 and storage.list() == []
        raise RuntimeError("writer failed")

    return write


def _die(*_: object) -> None:
    raise KeyboardInterrupt


def test_symbolic_links_are_followed_and_loops_end(storage: LocalStorage, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "f").write_bytes(b"far")
    storage.create_if_absent("d/near", b"near")
    root = Path(storage.uri)
    (root / "link").symlink_to(elsewhere)
    (root / "d" / "loop").symlink_to(root)
    (root / "dangling").symlink_to(root / "nowhere")
    assert storage.read("link/f") == b"far"
    assert {i.path for i in storage.list() if i.is_dir} == {"d", "link"}
    walked = [i.path for i in storage.walk()]
    assert walked.count("d/near") == 1 and "link/f" in walked
    assert not storage.exists("dangling")
    assert storage.delete_tree("d") == 2
    assert root.exists() and storage.read("link/f") == b"far"
    storage.delete_tree("")
    assert (elsewhere / "f").exists() and list(root.iterdir()) == []


def test_versions_differ_even_within_one_tick_of_the_clock(storage: LocalStorage) -> None:
    storage.create_if_absent("x", b"0")
    seen = {storage.stat("x").etag}
    for number in range(20):
        seen.add(storage.replace("x", str(number % 10).encode()).etag)
    assert len(seen) == 21


def test_another_process_cannot_slip_in_between_compare_and_replace(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.create_if_absent("x", b"1")
    etag = storage.stat("x").etag or ""
    original = local_files.write_file

    def write_then_lose(path: str, data: bytes) -> None:
        original(path, data)
        monkeypatch.setattr(local, "write_file", original)
        LocalStorage(storage.uri).replace("x", b"other")

    monkeypatch.setattr(local, "write_file", write_then_lose)
    with pytest.raises(PreconditionFailedError):
        storage.replace_if_match("x", b"2", etag)
    assert storage.read("x") == b"other"
    assert _names(storage) == {"x"}


def _create(root: str, number: int, queue: multiprocessing.Queue[int]) -> None:
    storage = LocalStorage(root)
    for name in range(5):
        try:
            storage.create_if_absent(str(name), str(number).encode())
            queue.put(name)
        except AlreadyExistsError:
            pass


def test_one_of_several_processes_wins_each_name(storage: LocalStorage) -> None:
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    workers = [context.Process(target=_create, args=(storage.uri, n, queue)) for n in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(queue.get(timeout=5) for _ in range(5)) == [0, 1, 2, 3, 4]
    assert queue.empty()


def test_a_file_in_the_place_of_a_folder_is_told(storage: LocalStorage) -> None:
    storage.create_if_absent("x", b"1")
    with pytest.raises(StorageError, match="create 'x/y'"):
        storage.create_if_absent("x/y", b"1")
    with pytest.raises(NotFoundError):
        storage.read("x/y")
    with pytest.raises(NotFoundError):
        storage.list("x")
    assert storage.delete("x/y") is False
    assert list(storage.walk("x")) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is denied to root")
def test_a_folder_without_permission_is_denied(storage: LocalStorage) -> None:
    storage.create_if_absent("d/x", b"1")
    Path(storage.uri, "d").chmod(0)
    try:
        with pytest.raises(StorageDeniedError):
            storage.read("d/x")
    finally:
        Path(storage.uri, "d").chmod(0o755)


MEANINGS = [
    (errno.ENOSPC, StorageError, "Free space", False),
    (errno.EDQUOT, StorageError, "quota", False),
    (errno.EROFS, StorageDeniedError, "read-only", False),
    (errno.EACCES, StorageDeniedError, "permissions", False),
    (errno.EOPNOTSUPP, StorageError, "hard links", False),
    (errno.ENAMETOOLONG, StorageError, "shorter", False),
    (errno.EIO, StorageUnavailableError, "disk", True),
    (errno.ESTALE, StorageUnavailableError, "mount", True),
    (errno.ENOTDIR, StorageError, "folder", False),
    (errno.EBADF, StorageError, "disk", False),
]


@pytest.mark.parametrize(("code", "kind", "hint", "retryable"), MEANINGS)
def test_system_errors_say_what_to_do(
    code: int, kind: type[StorageError], hint: str, retryable: bool
) -> None:
    error = local_error(OSError(code, os.strerror(code)), "create", "a/b", "/t")
    assert type(error) is kind and error.retryable is retryable
    assert hint in error.hint and error.context == {"path": "a/b", "root": "/t"}


def test_a_full_disk_publishes_nothing(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: str, data: bytes) -> None:
        Path(path).write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(local, "write_file", full)
    with pytest.raises(StorageError, match="No space left"):
        storage.create_if_absent("x", b"1")
    with pytest.raises(StorageError, match="No space left"):
        storage.replace("x", b"1")
    assert _names(storage) == set()


def test_a_file_system_that_repeats_a_link_recognises_its_own(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = Path.hardlink_to

    def link_twice(self: Path, target: str) -> None:
        link(self, target)
        link(self, target)

    monkeypatch.setattr(Path, "hardlink_to", link_twice)
    storage.create_if_absent("x", b"1")
    assert storage.read("x") == b"1"


def test_a_folder_that_others_remove_in_the_meantime_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage(tmp_path, unfinished="unfinished")
    write = local.write_file

    def interrupted(temporary: str, data: bytes) -> None:
        write(temporary, data)
        storage.delete_tree("folder")

    monkeypatch.setattr(local, "write_file", interrupted)
    storage.create_if_absent("folder/x", b"1")
    assert storage.read("folder/x") == b"1"


def test_a_folder_that_cannot_be_synced_leaves_the_outcome_unknown(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(folder: str) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(local, "sync_folder", broken)
    with pytest.raises(OutcomeUnknownError):
        storage.create_if_absent("x", b"1")
    assert storage.read("x") == b"1"


@pytest.mark.parametrize("gone", ["folder/x", "folder"])
def test_what_others_remove_at_once_was_published_all_the_same(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    sync = local_files.sync_folder

    def interrupted(folder: str) -> None:
        storage.delete(gone)
        storage.delete_tree(gone)
        sync(folder)

    monkeypatch.setattr(local, "sync_folder", interrupted)
    assert storage.create_if_absent("folder/x", b"1").size == 1
    assert storage.replace("folder/x", b"22").size == 2
    assert not storage.exists(gone)


def test_a_holder_that_was_stopped_is_waited_for_a_while_only(tmp_path: Path) -> None:
    clock = ManualClock()
    storage = LocalStorage(tmp_path, clock=clock)
    etag = storage.create_if_absent("x", b"1").etag or ""
    with local_files.folder_lock(str(tmp_path), clock, required=True):
        with pytest.raises(StorageUnavailableError, match="held the folder") as caught:
            storage.replace_if_match("x", b"2", etag)
        assert caught.value.retryable
        assert 10 <= clock.monotonic_s() < 11
        storage.replace("y", b"a sign of life")
        assert 11 <= clock.monotonic_s() < 12
    storage.replace_if_match("x", b"2", etag)
    assert _names(storage) == {"x", "y"}


def test_locks_that_do_not_exist_are_needed_only_for_conditions(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    storage.create_if_absent("x", b"1")
    monkeypatch.setattr(local_files.fcntl, "flock", no_locks)
    storage.replace("x", b"2")
    with pytest.raises(StorageError):
        storage.replace_if_match("x", b"3", storage.stat("x").etag or "")
    assert storage.read("x") == b"2"


def test_sweeping_removes_what_dead_writers_left_and_nothing_of_the_living(
    storage: LocalStorage, tmp_path: Path
) -> None:
    killed = """
import os, signal, sys
from lakewright.storage.local import LocalStorage
LocalStorage(sys.argv[1]).create_from("p/big", lambda sink: os.kill(os.getpid(), signal.SIGKILL))
"""
    subprocess.run([sys.executable, "-c", killed, storage.uri], check=False)
    left = [f.name for f in Path(storage.uri, "p").iterdir()]
    assert len(left) == 1 and storage.list("p") == []
    swept: list[int] = []
    storage.create_from("p/live", lambda sink: swept.append(storage.sweep("p")))
    assert swept == [1]
    assert [f.name for f in Path(storage.uri, "p").iterdir()] == ["live"]
    assert storage.sweep("p") == 0 and storage.sweep("missing") == 0


def test_unfinished_files_wait_in_a_folder_of_their_own(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "root", unfinished="own/unfinished")
    seen: list[list[str]] = []

    def look(sink: Any) -> None:
        seen.append([f.name for f in (tmp_path / "root" / "p").iterdir()])
        seen.append([f.name for f in (tmp_path / "root" / "own" / "unfinished").iterdir()])
        sink.write(b"x")

    storage.create_from("p/file", look)
    storage.child("p").replace("other", b"y")
    assert seen[0] == [] and len(seen[1]) == 1
    assert sorted(f.name for f in (tmp_path / "root" / "p").iterdir()) == ["file", "other"]
    assert list((tmp_path / "root" / "own" / "unfinished").iterdir()) == []
