"""How a heartbeat ends when what it stands for fails at its beginning."""

from __future__ import annotations

import pytest

from lakewright.errors import ConflictError, FencedError, LakewrightError, StorageUnavailableError
from lakewright.runtime import ManualClock
from lakewright.storage.memory import MemoryStorage
from lakewright.txn.heartbeat import HEARTBEAT_FOLDER, Heartbeat, HeartbeatOptions
from tests.txn.tables import START_MS, NeverRuns

INSTANT = "20250101000000000"


def _beating(storage: MemoryStorage) -> Heartbeat:
    clock = ManualClock(START_MS)
    return Heartbeat.start(storage, INSTANT, HeartbeatOptions(), clock=clock, spawner=NeverRuns())


@pytest.mark.parametrize(
    ("error", "stays"),
    [
        (ConflictError("It was begun.", hint="Look."), True),
        (StorageUnavailableError("It is out of reach.", hint="Try again."), False),
    ],
)
def test_a_claim_that_fails_beats_no_more_and_leaves_the_file_of_who_was_quicker(
    error: LakewrightError, stays: bool
) -> None:
    storage = MemoryStorage()
    heartbeat = _beating(storage)
    heartbeat.after_failure(type(error), error, None)
    with pytest.raises(FencedError):
        heartbeat.check()
    assert storage.exists(f"{HEARTBEAT_FOLDER}/{INSTANT}") == stays


def test_a_claim_that_succeeds_beats_on() -> None:
    storage = MemoryStorage()
    heartbeat = _beating(storage)
    heartbeat.after_failure(None, None, None)
    heartbeat.check()
    assert storage.exists(f"{HEARTBEAT_FOLDER}/{INSTANT}")
