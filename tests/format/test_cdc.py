"""What a write statistic says about how changes can be told."""

from __future__ import annotations

import pytest

from lakewright.errors import FormatError
from lakewright.format.cdc import ChangeCase, LoggingMode, case_of
from lakewright.format.records.commit import WriteStat

BASE = "north/8dac1d08-d6b0-47d1-8988-35c3d53e66c1-0_2-344-417_20261115112848665.parquet"
LOG = "north/.8dac1d08-d6b0-47d1-8988-35c3d53e66c1-0_20261115112848665.log.1_0-12-34"


def stat(path: str = BASE, **counts: int) -> WriteStat:
    return WriteStat(path=path, **counts)


def test_a_change_log_is_believed_whatever_the_counts_say() -> None:
    logged = WriteStat(path=BASE, num_writes=5, num_update_writes=2, cdc_stats={LOG + ".cdc": 9})
    assert case_of(logged, "UPSERT") is ChangeCase.CHANGE_LOG


def test_a_base_file_of_inserts_only_is_new() -> None:
    assert case_of(stat(num_writes=4, num_inserts=4), "UPSERT") is ChangeCase.NEW_FILE


@pytest.mark.parametrize("operation", ["DELETE", "DELETE_PREPPED"])
def test_a_delete_that_leaves_nothing_emptied_the_previous_file(operation: str) -> None:
    emptied = stat(num_writes=0, num_inserts=0, num_deletes=3)
    assert case_of(emptied, operation) is ChangeCase.EMPTIED_FILE
    assert case_of(emptied, "UPSERT") is ChangeCase.NEW_FILE


def test_a_log_file_is_compared() -> None:
    assert case_of(stat(LOG, num_writes=1, num_update_writes=1), "UPSERT") is ChangeCase.LOG_FILE


def test_a_rewritten_base_file_without_change_log_is_refused() -> None:
    with pytest.raises(FormatError, match="without a change log"):
        case_of(stat(num_writes=4, num_inserts=1, num_update_writes=1), "UPSERT")


def test_modes_are_read_in_any_case_of_letters() -> None:
    assert LoggingMode.of("data_before_after") is LoggingMode.DATA_BEFORE_AFTER
    with pytest.raises(FormatError, match="unknown mode"):
        LoggingMode.of("everything")
