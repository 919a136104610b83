"""Which process somebody is, and whether it is surely dead.

A `ProcessIdentity` is written down where a process leaves something that others may have to clean
up. `Processes.is_dead` answers True only for a process of this boot of this machine and of this
container that is certainly gone: an identifier that was given to another process since is told by
the moment it started. Of all others nothing is known, whatever they call their host, and the answer
is False.
"""

from __future__ import annotations

import json
import os
import socket
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

__all__ = ["ProcessIdentity", "Processes", "SystemProcesses"]


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process of one machine."""

    host: str
    """For people: hosts of the same name may be different machines."""
    boot: str
    """The boot of the machine and the process namespace; empty where they cannot be told."""
    pid: int
    started: str

    def to_json(self) -> str:
        """The identity as one line of text."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> ProcessIdentity | None:
        """The identity that `to_json` wrote; None for anything else."""
        try:
            values = json.loads(text)
            host, boot = str(values["host"]), str(values["boot"])
            return cls(host, boot, int(values["pid"]), str(values["started"]))
        except (ValueError, TypeError, KeyError):
            return None

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class Processes(Protocol):
    """What can be known about processes."""

    @property
    def own(self) -> ProcessIdentity:
        """This process."""
        ...

    def is_dead(self, identity: ProcessIdentity) -> bool:
        """Whether a process is certainly gone."""
        ...


class SystemProcesses:
    """The processes of this machine, where it tells about them in `/proc`."""

    __slots__ = ()

    @property
    def own(self) -> ProcessIdentity:
        """This process, also after a fork."""
        pid = os.getpid()
        return ProcessIdentity(socket.gethostname(), _boot(), pid, _started(pid) or "")

    def is_dead(self, identity: ProcessIdentity) -> bool:
        """Whether a process of this machine's present boot does not run any more."""
        mine = self.own
        if not mine.boot or not mine.started or identity.boot != mine.boot:
            return False
        return _started(identity.pid) != identity.started


@cache
def _boot() -> str:
    """What tells this boot and this namespace from all others; empty where it cannot be told."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    """When a process started, in ticks since the boot; None if there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]
