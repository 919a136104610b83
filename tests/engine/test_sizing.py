"""Where inserts go: size of a row, small files, and places for every row."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakewright.engine.sizing import (
    InsertPlan,
    SizingPolicy,
    average_record_bytes,
    plan_inserts,
    small_files,
)
from lakewright.format.file_slices import (
    BaseFile,
    FileGroup,
    FileGroupId,
    FileSlice,
    FileSystemView,
    LogFile,
)
from lakewright.format.records.commit import CommitMetadata, WriteStat
from lakewright.format.version import TableVersion

MIB = 1 << 20
POLICY = SizingPolicy()


def commit(*files: tuple[str, int, int]) -> CommitMetadata:
    stats = [
        WriteStat(path=path, total_write_bytes=size, num_writes=rows) for path, size, rows in files
    ]
    return CommitMetadata(partition_to_write_stats={"p": stats})


def base(file_id: str, size: int, partition: str = "p") -> BaseFile:
    return BaseFile(partition, f"{file_id}_0-0-0_1.parquet", size, "1", file_id, "0-0-0")


def slice_of(file: BaseFile | None, file_id: str, *logs: str, partition: str = "p") -> FileSlice:
    made = tuple(LogFile(partition, name, 1, "2", file_id, "0-0-0", 1) for name in logs)
    return FileSlice(FileGroupId(partition, file_id), "1", file, made)


def view(*slices: FileSlice, pending: frozenset[str] = frozenset()) -> FileSystemView:
    groups = {
        s.group: FileGroup(s.group, (s,), "3" if s.group.file_id in pending else None)
        for s in slices
    }
    return FileSystemView(groups, TableVersion.of(8), frozenset())


def test_the_newest_commit_that_wrote_enough_tells_the_size_of_a_row() -> None:
    small = commit(("p/a_0-0-0_3.parquet", MIB, 10))
    telling = commit(("p/a_0-0-0_2.parquet", 60 * MIB, 1000), ("p/b_0-0-0_2.parquet", 60 * MIB, 1))
    older = commit(("p/a_0-0-0_1.parquet", 500 * MIB, 7))
    assert average_record_bytes([small, telling, older], POLICY) == -(-120 * MIB // 1001)


def test_logs_do_not_count_and_an_empty_history_falls_back() -> None:
    logs = commit(("p/.a_1.log.1_0-0-0", 500 * MIB, 10))
    assert average_record_bytes([logs], POLICY) == 1024
    assert average_record_bytes([], POLICY) == 1024
    assert average_record_bytes([], SizingPolicy(record_size_estimate=64)) == 64


def test_only_a_few_commits_are_read_and_none_after_the_one_that_tells() -> None:
    asked: list[int] = []

    def history(telling: int | None) -> Iterator[CommitMetadata]:
        for i in range(9):
            asked.append(i)
            enough = i == telling
            yield commit(("p/a_0-0-0_1.parquet", 200 * MIB if enough else 1, 2))

    assert average_record_bytes(history(None), POLICY) == 1024
    assert asked == [0, 1, 2, 3, 4]
    asked.clear()
    assert average_record_bytes(history(1), POLICY) == 100 * MIB
    assert asked == [0, 1]


def test_what_is_no_row_in_a_file_can_be_left_out() -> None:
    metadata = commit(("p/a_0-0-0_1.parquet", 110 * MIB, 10))
    policy = SizingPolicy(record_size_metadata=10 * MIB - 20)
    assert average_record_bytes([metadata], policy) == 10 * MIB + 2


def test_small_files_of_a_copy_on_write_table_come_smallest_first() -> None:
    small, tiny, large = base("a", 5), base("b", 1), base("c", POLICY.small_file_limit)
    planned = base("d", 2)
    seen = view(*(slice_of(b, b.file_id) for b in (small, tiny, large, planned)))
    found = small_files(
        seen, merge_on_read=False, in_clustering={FileGroupId("p", "d")}, policy=POLICY
    )
    assert found == {"p": [tiny, small]}


def test_merge_on_read_leaves_groups_with_logs_or_plans_alone_and_fills_one() -> None:
    slices = [
        slice_of(base("a", 9), "a"),
        slice_of(base("b", 3), "b", ".b_1.log.1_0-0-0"),
        slice_of(base("c", 2), "c"),
        slice_of(base("d", 5), "d"),
        slice_of(None, "e", ".e_1.log.1_0-0-0"),
    ]
    seen = view(*slices, pending=frozenset({"c"}))
    found = small_files(seen, merge_on_read=True, in_clustering=(), policy=POLICY)
    assert found == {"p": [base("d", 5)]}
    more = SizingPolicy(small_file_candidates=2)
    found = small_files(seen, merge_on_read=True, in_clustering=(), policy=more)
    assert found == {"p": [base("d", 5), base("a", 9)]}


@pytest.mark.parametrize("limit", [0, -1])
def test_small_files_can_be_switched_off(limit: int) -> None:
    seen = view(slice_of(base("a", 1), "a"))
    policy = SizingPolicy(small_file_limit=limit)
    assert small_files(seen, merge_on_read=False, in_clustering=(), policy=policy) == {}


def test_small_files_are_filled_before_new_groups_are_made() -> None:
    policy = SizingPolicy(max_file_bytes=1000)
    files = [base("a", 600), base("b", 995)]
    [plan] = plan_inserts({"p": 275}, {"p": files}, record_bytes=10, policy=policy)
    assert [(a.base.file_id, a.rows) for a in plan.appends] == [("a", 40)]
    assert plan.new_groups == (100, 100, 35)
    assert plan.rows == 275


@pytest.mark.parametrize(
    ("rows", "size", "merge_on_read", "factor", "fills"),
    [
        (100, 9 * MIB, True, 64, False),
        (100, 8 * MIB, True, 64, True),  # tiny
        (100, 9 * MIB, False, 64, True),
        (100, 9 * MIB, True, 0, True),
        (2000, 60 * MIB, True, 64, True),
        (2000, 70 * MIB, True, 64, True),
        (1000, 70 * MIB, True, 64, False),
    ],
)
def test_few_rows_do_not_rewrite_a_file_that_is_many_times_larger(
    rows: int, size: int, merge_on_read: bool, factor: int, fills: bool
) -> None:
    policy = SizingPolicy(small_file_factor=factor)
    files = {"p": [base("a", size)]}
    [plan] = plan_inserts(
        {"p": rows}, files, record_bytes=1024, policy=policy, merge_on_read=merge_on_read
    )
    assert bool(plan.appends) == fills and plan.rows == rows


def test_groups_can_be_split_by_rows_instead() -> None:
    policy = SizingPolicy(insert_auto_split=False, insert_split_size=3)
    plans = plan_inserts({"p": 7, "q": 3, "r": 0}, {}, record_bytes=10, policy=policy)
    assert plans == [InsertPlan("p", (), (3, 3, 1)), InsertPlan("q", (), (3,))]


@given(
    st.dictionaries(st.sampled_from("pqr"), st.integers(0, 5000)),
    st.lists(st.integers(0, 2000), max_size=4),
    st.integers(1, 300),
    st.integers(1, 2000),
)
def test_every_row_has_exactly_one_place_and_no_place_is_empty(
    counts: dict[str, int], sizes: list[int], record_bytes: int, file_bytes: int
) -> None:
    policy = SizingPolicy(max_file_bytes=file_bytes)
    small = {"p": [base(str(i), size) for i, size in enumerate(sizes)]}
    plans = plan_inserts(counts, small, record_bytes=record_bytes, policy=policy)
    assert {p.partition: p.rows for p in plans} == {k: v for k, v in counts.items() if v}
    for plan in plans:
        assert all(a.rows > 0 for a in plan.appends) and all(n > 0 for n in plan.new_groups)
        for a in plan.appends:
            assert a.base.size + a.rows * record_bytes <= file_bytes
