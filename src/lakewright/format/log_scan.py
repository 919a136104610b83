"""Which log blocks of a slice count, and in which order: rollbacks, visibility, log compaction.

Pure: blocks in, a selection out. The blocks must come in file order, the files in merge order. A
corrupt region is set aside and never an error here; a block that contradicts the format (no instant
time, an unknown command) is, because it cannot be told what it cancels or belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from lakewright.errors import FormatError
from lakewright.format.log_block import ROLLBACK_COMMAND, BlockType, HeaderKey, LogBlock


class SkipReason(Enum):
    """Why a sound block does not count."""

    AFTER_LATEST = "written after the snapshot"
    NOT_COMPLETED = "its instant is not completed"
    OUT_OF_RANGE = "its instant is outside the asked range"
    ROLLED_BACK = "cancelled by a rollback block"
    COMPACTED = "replaced by a block of a log compaction"


@dataclass(frozen=True, slots=True)
class BlockSelection:
    """The data and delete blocks to merge, oldest first, and what was left out."""

    blocks: list[LogBlock]
    corrupt: list[LogBlock]
    skipped: Mapping[SkipReason, int]
    """Numbers of left-out blocks; a reason that did not occur is absent."""

    def without_contents(self) -> BlockSelection:
        """The same, not holding the bytes of any file."""
        blocks, corrupt = (
            [block.without_content() for block in part] for part in (self.blocks, self.corrupt)
        )
        return BlockSelection(blocks, corrupt, self.skipped)


def select_blocks(
    blocks_in_file_order: Iterable[LogBlock],
    *,
    is_visible: Callable[[str], bool] | None,
    latest: str | None,
    instants: Container[str] | None = None,
    keeps_lone: bool = True,
) -> BlockSelection:
    """Choose the blocks of one file slice that count.

    `is_visible` tells whether an instant is completed (None: the file listing has already dropped
    what is not); `latest` bounds block instants from above; `instants` is the asked range;
    `keeps_lone` takes log compactions of which no merged instant is left.
    Raises `FormatError` for blocks without instant time and for unknown commands.
    """
    by_instant: dict[str, list[LogBlock]] = {}
    corrupt: list[LogBlock] = []
    skipped: dict[SkipReason, int] = {}
    verdicts: dict[str, SkipReason | None] = {}
    for block in blocks_in_file_order:
        if block.type is BlockType.CORRUPT:
            corrupt.append(block)
            continue
        instant = _instant_of(block)
        if block.type is BlockType.COMMAND:
            cancelled = by_instant.pop(_rollback_target(block), [])
            _count(skipped, SkipReason.ROLLED_BACK, len(cancelled))
            continue
        if instant not in verdicts:
            verdicts[instant] = _reason_to_skip(instant, is_visible, latest, instants)
        reason = verdicts[instant]
        if reason is None:
            by_instant.setdefault(instant, []).append(block)
        else:
            _count(skipped, reason, 1)
    kept = _instants_in_merge_order(by_instant, keeps_lone=keeps_lone)
    for replaced in by_instant.keys() - set(kept):
        _count(skipped, SkipReason.COMPACTED, len(by_instant[replaced]))
    return BlockSelection([b for i in kept for b in by_instant[i]], corrupt, skipped)


def _reason_to_skip(
    instant: str,
    is_visible: Callable[[str], bool] | None,
    latest: str | None,
    instants: Container[str] | None,
) -> SkipReason | None:
    if latest is not None and instant > latest:
        return SkipReason.AFTER_LATEST
    if is_visible is not None and not is_visible(instant):
        return SkipReason.NOT_COMPLETED
    if instants is not None and instant not in instants:
        return SkipReason.OUT_OF_RANGE
    return None


def _instants_in_merge_order(
    by_instant: Mapping[str, list[LogBlock]], *, keeps_lone: bool
) -> list[str]:
    """Instants oldest first, where a log compaction stands for the instants it merged.

    It takes the place of the newest instant that it replaces. If none of them is left, it has its
    own place, so that its rows are never lost, or none.
    """
    order = list(by_instant)
    compacted = {i: t for i in order if (t := by_instant[i][0].compacted_times)}
    if not compacted:
        return order
    replaced_by: dict[str, str] = {}
    place: dict[str, int] = {}
    for position in range(len(order) - 1, -1, -1):
        instant = order[position]
        final = replaced_by.get(instant, instant)
        if instant in compacted:
            replaced_by.update(dict.fromkeys(compacted[instant], final))
        else:
            place.setdefault(final, position)
    for position, instant in enumerate(order if keeps_lone else ()):
        if instant == replaced_by.get(instant, instant):
            place.setdefault(instant, position)
    return sorted(place, key=place.__getitem__)


def _instant_of(block: LogBlock) -> str:
    instant = block.instant
    if instant is None:
        raise _illegal(block, "has no instant time")
    return instant


def _rollback_target(block: LogBlock) -> str:
    command = block.headers.get(HeaderKey.COMMAND_BLOCK_TYPE)
    if command != ROLLBACK_COMMAND:
        raise _illegal(block, f"has the unknown command {command}")
    target = block.target_instant
    if target is None:
        raise _illegal(block, "does not say which instant it rolls back")
    return target


def _illegal(block: LogBlock, problem: str) -> FormatError:
    return FormatError(
        f"A {block.type.name} log block {problem}.",
        hint="A newer release or another tool wrote it; compact the table with that tool.",
        context={"path": block.path, "offset": block.offset},
    )


def _count(skipped: dict[SkipReason, int], reason: SkipReason, number: int) -> None:
    if number:
        skipped[reason] = skipped.get(reason, 0) + number
