"""A table on an object store reads as it does in a folder."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

import lakewright as lw
from tests.fixtures import SHARED_ABSENT, SharedTable, expected_rows, shared_tables, unpack
from tests.quickly import a_few_quickly
from tests.rows import canonical, table_rows
from tests.storage.conftest import BUCKET, s3_client, s3_endpoint, s3_options

__all__ = ["s3_endpoint"]

TABLES = [
    t
    for t in shared_tables()
    if t.zip.startswith(("mor_v6_trips", "mor_v8_trips", "cow_v9_simple_overwrite"))
]
pytestmark = pytest.mark.skipif(not TABLES, reason=SHARED_ABSENT)


@pytest.mark.parametrize("shared", a_few_quickly(TABLES, 1), ids=lambda t: t.id)
def test_rows_from_s3_are_the_expected_ones(
    shared: SharedTable, s3_endpoint: str, tmp_path: Path
) -> None:
    boto3 = pytest.importorskip("boto3")
    client = s3_client(boto3, s3_endpoint)
    folder = unpack(shared, tmp_path)
    prefix = uuid.uuid4().hex
    for file in folder.rglob("*"):
        if file.is_file():
            client.upload_file(str(file), BUCKET, f"{prefix}/{file.relative_to(folder)}")
    for scheme in ("s3", "s3a"):
        table = lw.Table.open(f"{scheme}://{BUCKET}/{prefix}", storage=s3_options(s3_endpoint))
        assert canonical(table_rows(table.scan().to_arrow())) == canonical(expected_rows(shared))
    options = lw.ReadOptions(use_metadata_table=False)
    listed = table.scan(options=options)
    assert listed.plan().listing == "listing"
    assert canonical(table_rows(listed.to_arrow())) == canonical(expected_rows(shared))
