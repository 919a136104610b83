"""Table versions: three are known, the others are refused with the way out."""

from __future__ import annotations

import pytest

from lakewright.errors import UnsupportedTableError
from lakewright.format.version import SUPPORTED_VERSIONS, TableVersion


def test_versions_6_8_and_9_are_known_and_only_6_and_8_are_written() -> None:
    assert [v.number for v in SUPPORTED_VERSIONS] == [6, 8, 9]
    assert [v.number for v in SUPPORTED_VERSIONS if v.writable] == [6, 8]


def test_the_layout_and_everything_that_hangs_on_it_changes_between_6_and_8() -> None:
    six, eight = TableVersion.of(6), TableVersion.of(8)
    assert (six.layout_version, eight.layout_version) == (1, 2)
    assert not six.completion_time_in_name and eight.completion_time_in_name
    assert not six.commit_metadata_avro and eight.commit_metadata_avro
    assert six.pending_clustering_action == "replacecommit"
    assert eight.pending_clustering_action == "clustering"
    assert (six.payload_semantics, eight.payload_semantics) == ("0.x", "1.x")


def test_partial_update_modes_and_ordering_fields_come_with_9() -> None:
    assert not TableVersion.of(8).partial_update_modes
    assert TableVersion.of(9).partial_update_modes
    assert TableVersion.of(9).ordering_fields_key == "hoodie.table.ordering.fields"


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "Upgrade the table to version 6"),
        (1, "Upgrade the table to version 6"),
        (5, "Upgrade the table to version 6"),
        (7, "bridge"),
        (10, "Downgrade"),
        (99, "newer"),
    ],
)
def test_any_other_version_is_refused_by_name_with_a_way_out(number: int, words: str) -> None:
    with pytest.raises(UnsupportedTableError) as caught:
        TableVersion.of(number)
    assert f"hoodie.table.version={number}" in caught.value.message
    assert words in caught.value.hint
    assert caught.value.context["value"] == number
