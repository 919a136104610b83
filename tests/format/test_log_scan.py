"""Selection of log blocks: visibility, rollbacks, log compaction."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.errors import FormatError
from lakewright.format.log_block import BlockType, HeaderKey, LogBlock
from lakewright.format.log_scan import SkipReason, select_blocks

NOTHING = memoryview(b"")


def block(kind: BlockType, offset: int = 0, **headers: str) -> LogBlock:
    named = {HeaderKey[k]: v for k, v in headers.items()}
    return LogBlock("p", offset, 1, kind, named, NOTHING)


def data(instant: str, offset: int = 0, compacted: str = "") -> LogBlock:
    headers = {"INSTANT_TIME": instant}
    if compacted:
        headers["COMPACTED_BLOCK_TIMES"] = compacted
    return block(BlockType.AVRO_DATA, offset, **headers)


def rollback(target: str, instant: str = "9") -> LogBlock:
    return block(
        BlockType.COMMAND,
        INSTANT_TIME=instant,
        TARGET_INSTANT_TIME=target,
        COMMAND_BLOCK_TYPE="0",
    )


def selected(blocks: list[LogBlock]) -> list[str | None]:
    return [b.instant for b in select_blocks(blocks, is_visible=None, latest=None).blocks]


def test_a_rollback_cancels_every_earlier_block_of_its_target_and_no_later_one() -> None:
    blocks = [data("1", 0), data("2", 1), data("1", 2), rollback("1"), data("1", 3), data("3", 4)]
    found = select_blocks(blocks, is_visible=None, latest=None)
    assert [b.offset for b in found.blocks] == [1, 3, 4]
    assert found.skipped == {SkipReason.ROLLED_BACK: 2}


def test_a_rollback_without_a_target_in_the_slice_has_no_effect() -> None:
    assert selected([rollback("7"), data("1"), rollback("7"), rollback("7")]) == ["1"]


def test_rollbacks_count_even_when_their_own_instant_is_not_visible() -> None:
    blocks = [data("1"), data("2"), rollback("2", instant="8")]
    found = select_blocks(blocks, is_visible={"1", "2"}.__contains__, latest="5")
    assert [b.instant for b in found.blocks] == ["1"]


def test_blocks_are_left_out_for_the_first_reason_that_applies() -> None:
    blocks = [data("1"), data("2"), data("3"), data("4"), block(BlockType.CORRUPT, 7)]
    found = select_blocks(
        blocks, is_visible=lambda t: t != "2", latest="3", instants=frozenset({"1", "4"})
    )
    assert [b.instant for b in found.blocks] == ["1"]
    assert found.skipped == {
        SkipReason.NOT_COMPLETED: 1,
        SkipReason.OUT_OF_RANGE: 1,
        SkipReason.AFTER_LATEST: 1,
    }
    assert [b.offset for b in found.corrupt] == [7]


def test_blocks_of_one_instant_stay_together_at_its_first_place() -> None:
    assert selected([data("1"), data("2"), data("1")]) == ["1", "1", "2"]


def test_a_compacted_block_takes_the_place_of_the_newest_it_replaces() -> None:
    assert selected([data("1"), data("2"), data("3"), data("4", compacted="1,2")]) == ["4", "3"]
    nested = [
        data("1"),
        data("2"),
        data("3", compacted="1,2"),
        data("4"),
        data("5", compacted="3,4"),
    ]
    assert selected(nested) == ["5"]


def test_a_compacted_block_is_used_even_if_what_it_replaced_is_gone() -> None:
    assert selected([data("3"), data("4", compacted="1,2"), data("5")]) == ["3", "4", "5"]
    assert selected([data("4", compacted="4")]) == ["4"]


def test_in_a_range_a_compacted_block_can_be_nothing_without_what_it_replaced() -> None:
    blocks = [data("1"), data("2"), data("3", compacted="1,2"), data("4")]
    for range_, wanted in (({"3"}, []), ({"3", "4"}, ["4"]), ({"2", "3", "4"}, ["3", "4"])):
        found = select_blocks(
            blocks, is_visible=None, latest=None, instants=range_, keeps_lone=False
        )
        assert [b.instant for b in found.blocks] == wanted


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        (block(BlockType.AVRO_DATA), "no instant time"),
        (block(BlockType.DELETE, SCHEMA="{}"), "no instant time"),
        (block(BlockType.COMMAND, INSTANT_TIME="1", COMMAND_BLOCK_TYPE="1"), "command 1"),
        (block(BlockType.COMMAND, INSTANT_TIME="1"), "command None"),
        (block(BlockType.COMMAND, INSTANT_TIME="1", COMMAND_BLOCK_TYPE="0"), "rolls back"),
    ],
)
def test_blocks_that_cannot_be_understood_are_errors(bad: LogBlock, match: str) -> None:
    with pytest.raises(FormatError, match=match) as caught:
        select_blocks([bad], is_visible=None, latest=None)
    assert caught.value.context == {"path": "p", "offset": 0}


class Step(NamedTuple):
    kind: str
    instant: int
    compacted: frozenset[int]


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(["data"] * 5 + ["delete", "rollback", "corrupt"]),
        st.integers(1, 8),
        st.frozensets(st.integers(1, 6), max_size=3),
    ),
    max_size=14,
)


def slow_model(
    blocks: list[LogBlock], visible: set[str] | None, latest: str | None, wanted: set[str] | None
) -> list[LogBlock]:
    """The same rules, one block at a time, looking everything up again."""
    kept: list[LogBlock] = []
    for b in blocks:
        if b.type is BlockType.COMMAND:
            kept = [k for k in kept if k.instant != b.target_instant]
        elif b.type is not BlockType.CORRUPT:
            assert b.instant is not None
            if (
                (latest is None or b.instant <= latest)
                and (visible is None or b.instant in visible)
                and (wanted is None or b.instant in wanted)
            ):
                kept.append(b)
    order = list(dict.fromkeys(k.instant for k in kept))

    def of(instant: str | None) -> list[LogBlock]:
        return [k for k in kept if k.instant == instant]

    final: dict[str | None, str | None] = {}
    placed: list[tuple[int, str | None]] = []
    for position in reversed(range(len(order))):
        instant = order[position]
        times = of(instant)[0].compacted_times
        stands_for = final.get(instant, instant)
        for original in times:
            final[original] = stands_for
        if not times and stands_for not in [i for _, i in placed]:
            placed.append((position, stands_for))
    for position, instant in enumerate(order):
        gone = final.get(instant, instant) != instant
        if not gone and instant not in [i for _, i in placed]:
            placed.append((position, instant))
    return [k for _, instant in sorted(placed) for k in of(instant)]


def blocks_of(steps: list[Step]) -> list[LogBlock]:
    blocks = []
    for offset, (kind, number, compacted) in enumerate(steps):
        instant = str(number)
        if kind == "rollback":
            blocks.append(rollback(instant))
        elif kind == "corrupt":
            blocks.append(block(BlockType.CORRUPT, offset))
        else:
            older = ",".join(str(c) for c in sorted(compacted) if c < number and number > 6)
            made = data(instant, offset, older)
            blocks.append(made._replace(type=BlockType.DELETE) if kind == "delete" else made)
    return blocks


@settings(max_examples=200)
@given(
    STEPS,
    st.none() | st.sets(st.integers(1, 8).map(str)),
    st.none() | st.integers(1, 9).map(str),
    st.none() | st.sets(st.integers(1, 8).map(str)),
)
def test_selection_agrees_with_a_direct_model(
    steps: list[Step], visible: set[str] | None, latest: str | None, wanted: set[str] | None
) -> None:
    blocks = blocks_of(steps)
    found = select_blocks(
        iter(blocks),
        is_visible=None if visible is None else visible.__contains__,
        latest=latest,
        instants=wanted,
    )
    assert found.blocks == slow_model(blocks, visible, latest, wanted)
    kinds = Counter(b.type is BlockType.CORRUPT for b in blocks if b.type is not BlockType.COMMAND)
    assert len(found.corrupt) == kinds[True]
    assert len(found.blocks) + sum(found.skipped.values()) == kinds[False]
