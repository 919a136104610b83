"""Changes through Spark are those of `Table.changes`, for every range of real tables."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakewright.engine.changes import ChangeMode
from lakewright.spark import SparkTable
from tests.fixtures import SHARED_ABSENT, SharedTable, shared_tables, unpack
from tests.spark.rows import arrow_rows, spark_rows
from tests.spark.tables import real_table

CHOSEN = [
    t
    for t in shared_tables()
    if t.id.startswith(
        ("mor_v6_services", "mor_v8_trips", "cow_v9_simple_meta", "mor_v6_parquetlog_r")
    )
]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["cdc", "rows"])
def test_changes_are_those_of_the_table(
    spark: SparkSession, mode: ChangeMode, tmp_path: Path
) -> None:
    st = SparkTable.open(spark, real_table("v8_cow_change_data", tmp_path))
    second = st.table.timeline.commits().completed().in_completion_order()[1].completion_time
    wanted = st.table.changes(second, mode=mode).to_arrow()
    assert 0 < wanted.num_rows < st.table.changes(mode=mode).count()
    frame = st.changes(second, mode=mode)
    assert frame.columns == wanted.column_names and spark_rows(frame) == arrow_rows(wanted)
    now = st.table.changes().end
    assert st.changes(now, mode=mode).collect() == []
    some = {"columns": wanted.column_names[:2]}
    assert spark_rows(st.changes(mode=mode, **some)) == arrow_rows(
        st.table.changes(mode=mode, **some).to_arrow()
    )


@pytest.mark.slow
@pytest.mark.skipif(not CHOSEN, reason=SHARED_ABSENT)
@pytest.mark.parametrize("shared", CHOSEN, ids=lambda t: t.id)
def test_changed_rows_of_every_step_are_those_of_the_table(
    spark: SparkSession, shared: SharedTable, tmp_path: Path
) -> None:
    st = SparkTable.open(spark, unpack(shared, tmp_path))
    scheme = st.table.changes().end.scheme
    steps = [
        instant.requested_time if scheme == "requested" else instant.completion_time
        for instant in st.table.timeline.commits().completed().in_completion_order()
    ]
    ranges = [(None, None), *pairwise([None, *sorted(str(s) for s in steps)])]
    for since, until in ranges:
        wanted = st.table.changes(since, until).to_arrow()
        assert spark_rows(st.changes(since, until)) == arrow_rows(wanted)
