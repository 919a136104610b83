"""Completed writes that are taken from their readers."""

from __future__ import annotations

import pytest

from lakewright.errors import CorruptFileError, LockLostError
from lakewright.format.records import CommitMetadata
from lakewright.storage.memory import MemoryStorage
from lakewright.txn.unpublish import unpublish
from tests.txn.tables import new_access, new_storage

TIME = "20250101000000001"


@pytest.mark.parametrize("lost", [False, True])
def test_a_compaction_without_a_plan_is_damaged_unless_the_lock_was_lost(lost: bool) -> None:
    access = new_access(MemoryStorage())
    new_storage(8, "mor", access.storage)
    properties = access.properties()
    files = access.files(properties)
    done = CommitMetadata(operation_type="COMPACT", compacted=True)
    files.complete(TIME, "compaction", done.write(properties.version), TIME)
    [target] = access.timeline(properties).completed()
    with access.locked("test") as lease:
        if lost:
            lease.release()
        with pytest.raises(LockLostError if lost else CorruptFileError):
            unpublish(access, lease, properties, target)
