"""What the file of a file-system lock says about its holder.

The first three fields are those of Hudi's own lock files (which Hudi never parses, only shows);
ours adds a random token, which alone decides whose lock it is, and the process that wrote it. A
file that does not parse, because another program is still writing it, is the lock of somebody
unknown.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from lakewright.runtime.process import ProcessIdentity

__all__ = ["LockFile"]


@dataclass(frozen=True, slots=True)
class LockFile:
    """One lock file's content."""

    who: str
    since_ms: int | None = None
    token: str | None = None
    """None in the files of other programs."""
    process: ProcessIdentity | None = None
    released: bool = False
    """Nobody's lock any more, where a file is better replaced than deleted."""
    unfinished: bool = False
    """Its writer did not come to the end of it."""

    def encode(self) -> bytes:
        """The content, to be read by people, by Hudi and by `decode`."""
        created = datetime.fromtimestamp((self.since_ms or 0) / 1000, UTC)
        values = {
            "lockCreateTime": created.strftime("%Y-%m-%d %H:%M:%S.") + f"{created:%f}"[:3],
            "lockThreadName": self.who,
            "lockStacksInfo": [],
            "lakewright": {
                "token": self.token,
                "sinceMs": self.since_ms,
                "released": self.released,
                "process": None if self.process is None else asdict(self.process),
            },
        }
        return json.dumps(values, indent=2).encode()

    @classmethod
    def decode(cls, content: bytes, *, modified_ms: int) -> LockFile:
        """What a lock file says; `modified_ms` dates the files of other programs."""
        try:
            values = json.loads(content)
            thread = str(values["lockThreadName"])
        except (ValueError, TypeError, KeyError):
            return cls("a process that began to write it", modified_ms, unfinished=True)
        ours = values.get("lakewright")
        if not isinstance(ours, dict) or not isinstance(ours.get("token"), str):
            return cls(f"thread {thread!r} of a Hudi process", modified_ms)
        since = ours.get("sinceMs")
        return cls(
            thread,
            since if isinstance(since, int) else modified_ms,
            ours["token"],
            ProcessIdentity.from_json(json.dumps(ours.get("process"))),
            released=ours.get("released") is True,
        )
