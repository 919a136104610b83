"""Commits of the metadata table: together with those of the table, or not at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lakewright.errors import (
    IndexesChangedError,
    LockLostError,
    MetadataTableError,
    UnsupportedTableError,
)
from lakewright.format import property_keys as keys
from lakewright.format.properties import update_properties
from lakewright.format.records import WriteStat
from lakewright.format.table_properties import TableProperties
from lakewright.metadata.index_changes import IndexChanges
from lakewright.metadata.table import METADATA_FOLDER, MetadataTable
from lakewright.storage.base import Storage
from lakewright.txn.access import Access
from lakewright.txn.metadata_creation import build_metadata_table, drop_metadata_table
from lakewright.txn.metadata_gate import pass_metadata_gate
from lakewright.txn.transaction import Transaction, begin
from tests.txn.tables import new_access, new_storage, prepared, write_file

VERSIONS = [6, 8]


def begun(access: Access) -> Transaction:
    transaction = begin(access, action="commit")
    transaction.start()
    return transaction


def written(access: Access, transaction: Transaction, file_id: str) -> WriteStat:
    stat = write_file(access.storage, transaction, "d1", file_id)
    return replace(stat, file_size_in_bytes=access.storage.stat(stat.path or "").size)


def listed(storage: Storage, access: Access) -> set[str]:
    """File ids that the metadata table knows."""
    properties = access.properties()
    table = MetadataTable.open(storage, properties, access.timeline(properties))
    assert table is not None
    found = table.files(table.partitions()).values()
    return {file.name.split("_")[0] for files in found for file in files}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_commit_is_in_the_metadata_table(version: int) -> None:
    storage = new_storage(version)
    access = new_access(storage)
    assert build_metadata_table(access)
    transaction = begun(access)
    transaction.commit(prepared(access, written(access, transaction, "one-0")))
    assert listed(storage, access) == {"one-0"}


def test_a_write_keeps_a_metadata_table_that_came_meanwhile_and_none_that_went() -> None:
    storage = new_storage(8)
    access = new_access(storage)
    transaction = begun(access)
    stat = written(access, transaction, "one-0")
    build_metadata_table(access)
    transaction.commit(prepared(access, stat))
    assert listed(storage, access) == {"one-0"}
    transaction = begun(access)
    stat = written(access, transaction, "two-0")
    drop_metadata_table(access)
    transaction.commit(prepared(access, stat))
    assert not storage.exists(METADATA_FOLDER)


def test_a_write_gives_way_to_indexes_that_change_again_and_again() -> None:
    access = new_access(new_storage(8))
    transaction = begun(access)
    ready = prepared(access, written(access, transaction, "one-0"))
    changes = [build_metadata_table, drop_metadata_table] * 4

    def indexing(_: TableProperties) -> IndexChanges:
        changes.pop(0)(access)
        return {}

    with pytest.raises(IndexesChangedError, match="Run the write again"):
        transaction.commit(ready, indexing)
    assert len(changes) == 4
    assert "rolled back" in transaction.abort()


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_dead_commit_left_in_the_metadata_table_is_rolled_back(version: int) -> None:
    storage = new_storage(version)
    access = new_access(storage)
    build_metadata_table(access)
    own = storage.child(METADATA_FOLDER)
    folder = ".hoodie/timeline" if version == 8 else ".hoodie"
    dead = "20200101000000000"
    own.create_if_absent(f"{folder}/{dead}.deltacommit.requested", b"")
    own.create_if_absent(f"{folder}/{dead}.deltacommit.inflight", b"")
    own.create_if_absent(f"files/.files-0000-0_{dead}.log.1_0-0-1", b"#HUDI#")
    transaction = begun(access)
    transaction.commit(prepared(access, written(access, transaction, "one-0")))
    names = [info.name for info in own.walk()]
    assert not [n for n in names if dead in n]
    assert [n for n in names if n.endswith(".rollback")]
    assert listed(storage, access) == {"one-0"}


def test_who_loses_the_lock_while_it_writes_logs_takes_them_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storage = new_storage(8)
    access = new_access(storage)
    build_metadata_table(access)
    transaction = begun(access)
    ready = prepared(access, written(access, transaction, "one-0"))

    def logs() -> list[str]:
        names = storage.names(f"{METADATA_FOLDER}/files")
        return [name for name in names if transaction.instant in name]

    with access.locked("a look") as lease:
        kind: Any = type(lease)
    real, seen = kind.check, list[str]()

    def check(lease: Any) -> None:
        if logs():
            seen.extend(logs())
            raise LockLostError("It was lost.", hint="Run it again.", retryable=True)
        real(lease)

    monkeypatch.setattr(kind, "check", check)
    with pytest.raises(LockLostError):
        transaction.commit(ready)
    assert seen and logs() == []


def test_the_gate_lets_only_what_is_kept_right_pass() -> None:
    storage = new_storage(8)
    access = new_access(storage)
    build_metadata_table(access)
    pass_metadata_gate(access, drop=False)
    for claimed, said in (("files,expr_index_x", "expr_index_x"), ("column_stats", "files")):
        update_properties(storage, {keys.METADATA_PARTITIONS: claimed}, clock=access.clock)
        with pytest.raises(UnsupportedTableError, match=said):
            pass_metadata_gate(access, drop=False)
    update_properties(storage, {keys.METADATA_PARTITIONS: "files,record_index"}, clock=access.clock)
    newer = b'{"indexDefinitions": {"record_index": {"version": "V2"}}}'
    storage.replace(".hoodie/.index_defs/index.json", newer)
    with pytest.raises(UnsupportedTableError, match="newer layout"):
        pass_metadata_gate(access, drop=False)
    update_properties(storage, {keys.METADATA_PARTITIONS: "files"}, clock=access.clock)
    storage.delete_tree(METADATA_FOLDER)
    with pytest.raises(MetadataTableError):
        pass_metadata_gate(access, drop=False)
    pass_metadata_gate(access, drop=True)
    assert access.properties().metadata_partitions == ()
