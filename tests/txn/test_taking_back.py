"""Files that are published too late: which go, and which stay with their blocks cancelled."""

from __future__ import annotations

import pickle
from dataclasses import replace

from lakewright.format.file_names import LogFileName
from lakewright.format.log_block import (
    BlockType,
    HeaderKey,
    encode_block,
    read_blocks,
    rollback_block,
)
from lakewright.format.partitions import format_partition_metadata
from lakewright.format.records import CommitMetadata, InstantInfo, RollbackPlan
from lakewright.storage.base import Storage
from lakewright.txn.access import Access
from lakewright.txn.fence import Fence
from lakewright.txn.markers import Marker, MarkerType
from lakewright.txn.taking_back import take_back
from tests.txn.tables import new_access, new_storage

OLDEST, SLICE, LATE = "20250101000000000", "20250102000000000", "20250103000000000"
ROLLBACK = "20250104000000000"
FENCE = Fence(LATE, f".hoodie/{LATE}.deltacommit.inflight")
LOG = LogFileName("g-0", SLICE, 1, "0-1-1").text


def _table(*commits: str) -> Access:
    """A version 6 table with a log that a write published when its fence was closed."""
    access = new_access(new_storage(6, "mor"))
    storage, properties = access.storage, access.properties()
    files = access.files(properties)
    for commit in commits:
        files.request(commit, "deltacommit")
        files.start(commit, "deltacommit")
        files.complete(commit, "deltacommit", CommitMetadata().write(properties.version), commit)
    storage.replace("a/.hoodie_partition_metadata", format_partition_metadata(OLDEST, 1, now_ms=0))
    headers = {HeaderKey.INSTANT_TIME: LATE, HeaderKey.SCHEMA: '"string"'}
    storage.replace(f"a/{LOG}", encode_block(BlockType.AVRO_DATA, headers, b""))
    return access


def _logs(storage: Storage) -> list[str]:
    return sorted(i.path for i in storage.walk("a") if ".log." in i.path)


def _taken_back(
    access: Access,
    name: str = LOG,
    kind: MarkerType = MarkerType.APPEND,
    fence: Fence = FENCE,
) -> list[str]:
    take_back(access.storage, fence, Marker("a", name, kind))
    return _logs(access.storage)


def test_a_log_of_an_older_slice_stays_when_its_write_was_rolled_back_and_is_cancelled() -> None:
    access = _table(OLDEST, SLICE)
    log, command = _taken_back(access)
    (block,) = read_blocks(access.storage.read(command), path=command)
    assert log == f"a/{LOG}" and block.target_instant == LATE


def test_it_stays_too_while_the_rollback_is_pending() -> None:
    access = _table(OLDEST, SLICE)
    properties = access.properties()
    files = access.files(properties)
    files.request(LATE, "deltacommit")
    plan = RollbackPlan(instant_to_rollback=InstantInfo(commit_time=LATE, action="deltacommit"))
    files.request(ROLLBACK, "rollback", plan.write(properties.version))
    assert len(_taken_back(access)) == 2


def test_nothing_of_a_write_that_is_being_committed_is_cancelled() -> None:
    access = _table(OLDEST, SLICE)
    access.files(access.properties()).request(LATE, "deltacommit")
    assert _taken_back(access) == []
    assert _taken_back(_table(OLDEST, SLICE, LATE)) == []


def test_the_process_that_would_commit_knows_that_its_write_is_rolled_back() -> None:
    access = _table(OLDEST, SLICE)
    access.files(access.properties()).request(LATE, "deltacommit")
    own = replace(FENCE, own=True)
    assert len(_taken_back(access, fence=own)) == 2
    assert pickle.loads(pickle.dumps(own)) == FENCE


def test_a_log_behind_a_slice_that_was_taken_back_goes() -> None:
    assert _taken_back(_table(OLDEST)) == []


def test_a_log_behind_an_archived_slice_stays() -> None:
    later = "20250102120000000"
    assert len(_taken_back(_table(later))) == 2


def test_a_file_of_its_own_name_goes() -> None:
    access = _table(OLDEST, SLICE)
    own = LogFileName("n-0", LATE, 1, "0-1-1").text
    access.storage.replace(f"a/{own}", rollback_block(instant=LATE, target=LATE))
    assert _taken_back(access, own) == [f"a/{LOG}"]
    assert _taken_back(access, LOG, MarkerType.CREATE) == []
