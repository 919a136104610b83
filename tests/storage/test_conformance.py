"""What every storage promises, asked of each kind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakewright.errors import (
    AlreadyExistsError,
    LockLostError,
    NotFoundError,
    PreconditionFailedError,
    StorageError,
)
from lakewright.storage import MODIFIED_UNKNOWN, Storage

ODD_NAMES = [
    "plain",
    ".dot",
    "with space",
    "city=são paulo",
    "a%2Fb",
    "h#a?s*[h]~|^{}\"`'+&",
    "back\\slash",
    "😀",
]


def test_what_was_created_is_read_whole_and_in_parts(storage: Storage) -> None:
    data = bytes(range(256)) * 10
    info = storage.create_if_absent("a/b/c.bin", data)
    assert (info.path, info.size, info.name, info.is_dir) == ("a/b/c.bin", 2560, "c.bin", False)
    assert storage.read("a/b/c.bin") == data
    assert storage.read_range("a/b/c.bin", 10, 5) == data[10:15]
    assert storage.read_range("a/b/c.bin", 2550, 100) == data[2550:]
    assert storage.read_range("a/b/c.bin", 2560, 5) == b""
    assert storage.read_range("a/b/c.bin", 99999, 5) == b""
    assert storage.read_range("a/b/c.bin", 0, 1 << 50) == data
    assert storage.read_range("a/b/c.bin", 5, 0) == b""
    with storage.open_input("a/b/c.bin") as source:
        assert source.size() == 2560
        assert source.read_at(7, 100) == data[100:107]


def test_buffers_and_empty_objects_are_stored_as_they_are(storage: Storage) -> None:
    storage.create_if_absent("empty", b"")
    storage.create_if_absent("array", bytearray(b"xyz"))
    storage.replace("view", memoryview(b"__abc__")[2:5])
    assert [storage.read(name) for name in ("empty", "array", "view")] == [b"", b"xyz", b"abc"]
    assert storage.stat("empty").size == 0
    assert storage.read_range("empty", 0, 10) == b""


def test_a_second_create_fails_and_changes_nothing(storage: Storage) -> None:
    storage.create_if_absent("x", b"first")
    for again in (b"second", b"first"):
        with pytest.raises(AlreadyExistsError):
            storage.create_if_absent("x", again)
    with pytest.raises(AlreadyExistsError):
        storage.create_from("x", lambda sink: sink.write(b"third"))
    assert storage.read("x") == b"first"


def test_exactly_one_of_many_racing_creators_wins(make_storage: Callable[[], Storage]) -> None:
    racers, rounds = 6, 5
    won: list[list[int]] = [[] for _ in range(rounds)]
    barrier = threading.Barrier(racers)

    def race(me: int) -> None:
        storage = make_storage()
        for number in range(rounds):
            barrier.wait()
            try:
                storage.create_if_absent(f"race/{number}", str(me).encode())
                won[number].append(me)
            except AlreadyExistsError:
                pass

    threads = [threading.Thread(target=race, args=(me,)) for me in range(racers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    storage = make_storage()
    assert [len(winners) for winners in won] == [1] * rounds
    assert [storage.read(f"race/{n}") for n in range(rounds)] == [str(w[0]).encode() for w in won]
    assert len(storage.list("race")) == rounds


def test_a_conditional_replace_needs_the_current_version(storage: Storage) -> None:
    storage.create_if_absent("p", b"one")
    first = storage.stat("p").etag
    assert first is not None
    second = storage.replace_if_match("p", b"two", first).etag
    assert second is not None and second == storage.stat("p").etag
    with pytest.raises(PreconditionFailedError):
        storage.replace_if_match("p", b"lost", first)
    assert storage.read("p") == b"two"
    storage.replace("p", b"owt")
    with pytest.raises(PreconditionFailedError):
        storage.replace_if_match("p", b"lost", second)
    storage.delete("p")
    with pytest.raises(PreconditionFailedError):
        storage.replace_if_match("p", b"lost", second)
    assert not storage.exists("p")


def test_counting_by_conditional_replace_loses_nothing(
    make_storage: Callable[[], Storage],
) -> None:
    make_storage().create_if_absent("count", b"0")
    workers, each = 4, 5
    failures: list[BaseException] = []

    def work() -> None:
        try:
            storage = make_storage()
            for _ in range(each):
                while True:
                    etag = storage.stat("count").etag
                    value = int(storage.read("count"))
                    try:
                        storage.replace_if_match("count", str(value + 1).encode(), etag or "")
                        break
                    except PreconditionFailedError:
                        continue
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert int(make_storage().read("count")) == workers * each


def test_listings_show_direct_children_in_order(storage: Storage) -> None:
    for path in ("p/b", "p/a/x", "p/a/y", "p/a-b", "p/.hidden", "q"):
        storage.create_if_absent(path, b"1")
    listed = storage.list("p")
    assert [(i.path, i.is_dir) for i in listed] == [
        ("p/.hidden", False),
        ("p/a", True),
        ("p/a-b", False),
        ("p/b", False),
    ]
    assert [i.path for i in storage.list()] == ["p", "q"]
    assert {i.path for i in storage.walk("p")} == {"p/b", "p/a/x", "p/a/y", "p/a-b", "p/.hidden"}
    assert len(list(storage.walk())) == 6
    file = next(i for i in listed if i.path == "p/b")
    assert file == storage.stat("p/b")
    assert file.size == 1 and file.modified_ms > 0


def test_a_folder_is_not_confused_with_its_neighbours(storage: Storage) -> None:
    storage.create_if_absent("ab/x", b"1")
    storage.create_if_absent("a/x", b"1")
    assert [i.path for i in storage.list("a")] == ["a/x"]
    assert [i.path for i in storage.walk("a")] == ["a/x"]
    assert storage.delete_tree("a") == 1
    assert not storage.exists("a") and storage.exists("ab") and storage.exists("ab/x")


def test_missing_objects_and_folders(storage: Storage) -> None:
    for ask in (storage.read, storage.stat, storage.open_input):
        with pytest.raises(NotFoundError):
            ask("nowhere/x")
    with pytest.raises(NotFoundError):
        storage.read_range("nowhere/x", 0, 1)
    assert not storage.exists("nowhere")
    assert storage.delete("nowhere/x") is False
    assert list(storage.walk("nowhere")) == []
    assert storage.delete_tree("nowhere") == 0
    if storage.guarantees.real_directories:
        with pytest.raises(NotFoundError):
            storage.list("nowhere")
    else:
        assert storage.list("nowhere") == []


def test_directories_exist_where_they_are_real(storage: Storage) -> None:
    storage.make_dir("d/e")
    assert storage.exists("d/e") is storage.guarantees.real_directories
    storage.create_if_absent("d/e/f", b"1")
    assert storage.delete("d/e") is False
    assert storage.exists("d/e/f")
    with pytest.raises(NotFoundError):
        storage.read("d/e")


def test_deleting_says_whether_something_was_there(storage: Storage) -> None:
    storage.create_if_absent("x", b"1")
    assert storage.delete("x") is True
    assert storage.delete("x") is False
    storage.create_if_absent("x", b"2")
    assert storage.read("x") == b"2"


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_are_kept_letter_by_letter(storage: Storage, name: str) -> None:
    path = f"{name}/{name}"
    storage.create_if_absent(path, b"1")
    assert storage.read(path) == b"1"
    assert [i.path for i in storage.list()] == [name]
    assert [i.path for i in storage.list(name)] == [path]
    assert [i.path for i in storage.walk()] == [path]
    with storage.open_input(path) as source:
        assert source.read() == b"1"


@pytest.mark.parametrize("path", ["/x", "x/", "../x", "a/../x", "a//x", ".", "a/./b", "a\0b"])
def test_paths_cannot_leave_the_root(storage: Storage, path: str) -> None:
    actions: list[Callable[[], Any]] = [
        lambda: storage.read(path),
        lambda: storage.create_if_absent(path, b""),
        lambda: storage.list(path),
        lambda: storage.delete_tree(path),
        lambda: storage.child(path),
        lambda: list(storage.walk(path)),
    ]
    for action in actions:
        with pytest.raises(StorageError, match="not a clean path"):
            action()


def test_the_root_is_no_object_and_ranges_are_not_negative(storage: Storage) -> None:
    for action in (lambda: storage.read(""), lambda: storage.create_if_absent("", b"")):
        with pytest.raises(StorageError):
            action()
    storage.create_if_absent("x", b"abc")
    for offset, length in ((-1, 1), (0, -1)):
        with pytest.raises(StorageError):
            storage.read_range("x", offset, length)


def test_a_child_is_the_same_storage_further_down(storage: Storage) -> None:
    child = storage.child("t/u")
    child.create_if_absent("x", b"1")
    assert storage.read("t/u/x") == b"1"
    assert [i.path for i in child.list()] == ["x"]
    assert [i.path for i in child.walk()] == ["x"]
    assert child.stat("x").path == "x"
    assert child.uri == f"{storage.uri}/t/u"
    assert child.guarantees == storage.guarantees


def test_large_objects_are_published_when_they_are_whole(storage: Storage) -> None:
    table = pa.table({"n": pa.array(range(100_000))})

    def write(sink: Any) -> None:
        pq.write_table(table, sink)
        assert not storage.exists("data/n.parquet")

    info = storage.create_from("data/n.parquet", write)
    assert info.size == storage.stat("data/n.parquet").size
    assert pq.read_table(storage.open_input("data/n.parquet")).equals(table)
    with pytest.raises(ZeroDivisionError):
        storage.create_from("data/broken", lambda sink: sink.write(b"x" * (1 // 0)))
    assert [i.path for i in storage.list("data")] == ["data/n.parquet"]


def test_many_children_are_listed_completely(storage: Storage) -> None:
    count = 1200 if storage.uri.startswith("memory:") else 40
    names = [f"many/{n:04}" for n in range(count)]
    for name in names:
        storage.replace(name, b"")
    assert [i.path for i in storage.list("many")] == names
    assert [i.path for i in storage.walk("many")] == names
    assert storage.delete_tree("many") == len(names)
    assert not storage.exists("many")


def test_a_tree_goes_only_as_long_as_it_may(storage: Storage) -> None:
    for name in ("tree/a", "tree/b", "tree/inner/c"):
        storage.replace(name, b"")

    def check() -> None:
        raise LockLostError("It was lost.", hint="Stop.")

    with pytest.raises(LockLostError):
        storage.delete_tree("tree", check=check)
    assert len(list(storage.walk("tree"))) == 3
    asked: list[int] = []
    assert storage.delete_tree("tree", check=lambda: asked.append(1)) == 3
    assert asked


def test_modification_times_are_set_or_refused(storage: Storage) -> None:
    info = storage.create_if_absent("x", b"1")
    assert info.modified_ms in (MODIFIED_UNKNOWN, storage.stat("x").modified_ms)
    if storage.guarantees.modified_times_settable:
        storage.set_modified("x", 1_600_000_000_123)
        assert storage.stat("x").modified_ms == 1_600_000_000_123
        with pytest.raises(NotFoundError):
            storage.set_modified("y", 1)
    else:
        with pytest.raises(StorageError):
            storage.set_modified("x", 1_600_000_000_123)


def test_the_same_create_again_finds_its_own_object(storage: Storage) -> None:
    if not storage.guarantees.creation_tokens:
        pytest.skip("outcomes are always known here")
    first = storage.create_if_absent("x", b"", token="mine")
    again = storage.create_if_absent("x", b"", token="mine")
    assert (again.path, again.size, again.etag) == (first.path, first.size, first.etag)
    with pytest.raises(AlreadyExistsError):
        storage.create_if_absent("x", b"", token="yours")
    with pytest.raises(AlreadyExistsError):
        storage.create_if_absent("x", b"")


def test_it_is_a_storage(storage: Storage) -> None:
    assert isinstance(storage, Storage)
    assert "test-secret" not in repr(storage) and "test-key-id" not in repr(storage)
