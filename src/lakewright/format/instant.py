"""Instants: one action on a table at one time in one state, and the file names that say so.

Layout 1 (version 6) names a completed file `T.action`; layout 2 (versions 8 and 9) names it
`T_C.action` with the completion time, and still accepts `T.action` as a legacy file. The inflight
file of a commit is `T.inflight` in both. Names that follow neither rule (side files, temporary
files, properties, folders) are not instants: `parse_instant_name` returns None for them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from lakewright.errors import FormatError

__all__ = [
    "COMMIT_ACTIONS",
    "WRITE_ACTIONS",
    "Instant",
    "ParsedName",
    "State",
    "completed_action",
    "format_instant_name",
    "parse_instant_name",
]


class State(IntEnum):
    """States in the order an instant goes through them."""

    REQUESTED = 0
    INFLIGHT = 1
    COMPLETED = 2


COMMIT_ACTIONS = frozenset({"commit", "deltacommit", "replacecommit", "clustering"})
"""Actions of the commits timeline."""

WRITE_ACTIONS = COMMIT_ACTIONS | {"compaction", "logcompaction"}
"""Actions that write data files."""

_COMPLETES_AS = {
    "compaction": "commit",
    "logcompaction": "deltacommit",
    "clustering": "replacecommit",
}


def completed_action(action: str) -> str:
    """The action a pending `action` completes as: a compaction becomes a commit."""
    return _COMPLETES_AS.get(action, action)


@dataclass(frozen=True, slots=True)
class Instant:
    """One state file of an instant.

    `action` is what the file says, so a pending compaction is `compaction` and a completed one is
    `commit`. `completion_time` is None while pending; in layout 1 and for `legacy` files it is the
    modification time of the completed file, which copying a table may change.
    """

    requested_time: str
    action: str
    state: State
    completion_time: str | None
    file_name: str
    legacy: bool = False

    @property
    def completed(self) -> bool:
        """Whether the instant is committed."""
        return self.state is State.COMPLETED

    @property
    def completed_action(self) -> str:
        """The action under which all states of the instant are one."""
        return completed_action(self.action)

    def __str__(self) -> str:
        return f"{self.requested_time} {self.action} {self.state.name}"


class ParsedName(NamedTuple):
    """What the name of an instant file says."""

    requested_time: str
    action: str
    state: State
    completion_time: str | None


_COMPLETED_ACTIONS = (
    "commit",
    "deltacommit",
    "replacecommit",
    "clean",
    "rollback",
    "restore",
    "savepoint",
    "indexing",
    "schemacommit",
)
_LAYOUT_1_PENDING = (*_COMPLETED_ACTIONS, "compaction", "logcompaction")


def _extensions(pending: tuple[str, ...]) -> dict[str, tuple[str, State]]:
    found = {action: (action, State.COMPLETED) for action in _COMPLETED_ACTIONS}
    for action in pending:
        if action != "savepoint":
            found[f"{action}.requested"] = (action, State.REQUESTED)
        found["inflight" if action == "commit" else f"{action}.inflight"] = (
            action,
            State.INFLIGHT,
        )
    return found


_EXTENSIONS = {
    1: _extensions(_LAYOUT_1_PENDING),
    2: _extensions((*_LAYOUT_1_PENDING, "clustering")),
}
_NAMES = {
    layout: {said: extension for extension, said in table.items()}
    for layout, table in _EXTENSIONS.items()
}
_NAME = re.compile(r"([0-9]+)(?:_([0-9]+))?\.([a-z.]+)")


def parse_instant_name(name: str, layout: int) -> ParsedName | None:
    """What an instant file's name says under a timeline layout; None if it is no instant file."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    requested_time, completion_time, extension = match.groups()
    said = _EXTENSIONS[layout].get(extension)
    if said is None:
        return None
    action, state = said
    if completion_time is not None and (layout == 1 or state is not State.COMPLETED):
        return None
    return ParsedName(requested_time, action, state, completion_time)


def format_instant_name(
    requested_time: str,
    action: str,
    state: State,
    *,
    layout: int,
    completion_time: str | None = None,
) -> str:
    """The file name of an instant; `action` is the pending one, mapped when it completes."""
    completed = state is State.COMPLETED
    said = completed_action(action) if completed else action
    extension = _NAMES[layout].get((said, state))
    wants_completion = completed and layout == 2
    if (
        extension is None
        or not _is_digits(requested_time)
        or wants_completion != (completion_time is not None)
        or (completion_time is not None and not _is_digits(completion_time))
    ):
        raise FormatError(
            f"Layout {layout} has no file name for {action} {state.name} at {requested_time!r} "
            f"(completion time {completion_time!r}).",
            hint="Use an action of this layout, digits for times, and a completion time exactly "
            "for completed instants of layout 2.",
            context={"action": action, "state": state.name, "layout": layout},
        )
    stem = f"{requested_time}_{completion_time}" if wants_completion else requested_time
    return f"{stem}.{extension}"


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()
