"""Options of the format `lakewright`."""

from __future__ import annotations

import pytest

from lakewright.errors import OptionError
from lakewright.spark.request import ReadRequest


def test_options_are_typed_and_not_case_sensitive() -> None:
    request = ReadRequest.parse(
        {
            "PATH": "s3a://bucket/t",
            "columns": "id, ts",
            "Where": "ts > 5",
            "as.of.instant": "20240101000000000",
            "hoodie.datasource.query.type": "read_optimized",
            "meta": "False",
            "batch_rows": "100",
            "storage.endpoint": "https://here",
            "storage.anonymous": "true",
            "max_instants_per_batch": "3",
            "changes": "cdc",
        }
    )
    assert request.storage.uri == "s3://bucket/t"
    assert request.columns == ("id", "ts") and request.where == "ts > 5"
    assert request.as_of == "20240101000000000" and request.mode == "read_optimized"
    assert not request.meta and request.options.batch_rows == 100
    assert request.storage.options.anonymous and request.storage.options.endpoint == "https://here"
    assert (request.max_instants, request.max_bytes, request.changes) == (3, None, "cdc")


def test_names_with_commas_come_as_a_json_list() -> None:
    assert ReadRequest.parse({"path": "t", "columns": '["a,b", "c"]'}).columns == ("a,b", "c")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "path"),
        ({"path": "t", "wher": "a = 1"}, "'where'"),
        ({"path": "t", "mode": "fast"}, "read_optimized"),
        ({"path": "t", "meta": "maybe"}, "true or false"),
        ({"path": "t", "batch_rows": "-1"}, "batch_rows"),
        ({"path": "t", "columns": "[1"}, "JSON"),
        ({"path": "t", "max_bytes_per_batch": "0"}, "above 0"),
        ({"path": "t", "storage.secret": "x"}, "storage.secret"),
    ],
)
def test_wrong_options_say_what_would_be_right(options: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError) as caught:
        ReadRequest.parse(options)
    assert says in str(caught.value)
