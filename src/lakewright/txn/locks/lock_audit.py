"""The audit trail of the storage-based lock, where the table asks for one.

If `.hoodie/.locks/audit_enabled.json` says so, each transaction leaves a file of JSON lines that
tell when its lock was obtained, renewed and given back. The file is rewritten whole for each line.
Failures to read the switch or to write the trail never touch the lock.
"""

from __future__ import annotations

import json
from typing import Final

from lakewright.errors import LakewrightError
from lakewright.storage.base import Storage

__all__ = ["LockAudit"]

FOLDER: Final = ".hoodie/.locks/audit"
SWITCH_PATH: Final = ".hoodie/.locks/audit_enabled.json"
_SWITCH: Final = "STORAGE_LOCK_AUDIT_SERVICE_ENABLED"


class LockAudit:
    """The trail of one transaction."""

    def __init__(self, storage: Storage, owner: str, started_ms: int, validity_ms: int) -> None:
        self._storage = storage
        self._owner = owner
        self._started_ms = started_ms
        self._validity_ms = validity_ms
        self._lines: list[str] = []

    @classmethod
    def opened(
        cls, storage: Storage, owner: str, started_ms: int, validity_ms: int
    ) -> LockAudit | None:
        """The trail, if the table wants one."""
        try:
            switch = json.loads(storage.read(SWITCH_PATH))
        except (LakewrightError, ValueError):
            return None
        if not isinstance(switch, dict) or switch.get(_SWITCH) is not True:
            return None
        return cls(storage, owner, started_ms, validity_ms)

    def record(self, state: str, now_ms: int, *, held: bool) -> None:
        """Add one line: START, RENEW or END."""
        values = {
            "ownerId": self._owner,
            "transactionStartTime": self._started_ms,
            "timestamp": now_ms,
            "state": state,
            "lockExpiration": now_ms + self._validity_ms,
            "lockHeld": held,
        }
        self._lines.append(json.dumps(values, separators=(",", ":")) + "\n")
        path = f"{FOLDER}/{self._started_ms}_{self._owner}.jsonl"
        try:
            self._storage.replace(path, "".join(self._lines).encode())
        except LakewrightError:
            return  # the lock matters more than its trail; the next line brings this one along
