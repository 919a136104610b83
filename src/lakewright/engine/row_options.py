"""Options of writing that decide about rows: their keys, columns, duplicates and index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict

from lakewright.engine.file_options import option

__all__ = ["RowOptions"]


class RowOptions(BaseModel):
    """What is done with the rows of a write."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    # -- keys ---------------------------------------------------------------------------------
    complex_keys_bare: bool | None = option(
        None,
        "A COMPLEX key of one field is stored as `value` (true) or `field:value` (false); None: "
        "as the table's rows have it.",
        "hoodie.write.complex.keygen.new.encoding",
    )
    consistent_timestamps: bool | None = option(
        None,
        "Timestamps in keys are texts (true) or numbers (false); None: as the table's rows have "
        "it.",
        "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled",
    )
    sql_timestamps: bool | None = option(
        None,
        "Folders of timestamp partitions are written as Spark SQL does; None: as those that are "
        "there.",
    )
    key_zone: str = option(
        "UTC", "Zone of timestamps in keys and paths, where Hudi takes that of its JVM."
    )
    partition_types: Mapping[str, str] = option(
        {}, "SIMPLE or TIMESTAMP by partition field; from `field:TYPE` in the partition fields."
    )
    time_settings: Mapping[str, str] = option(
        {}, "Settings of time-based partitions that the table does not store."
    )

    # -- rows ---------------------------------------------------------------------------------
    operation: str | None = option(
        None,
        "The operation, where the call does not say it.",
        "hoodie.datasource.write.operation",
    )
    combine_before_insert: bool = option(
        False,
        "Rows of one key in an insert become one row.",
        "hoodie.combine.before.insert",
    )
    combine_before_upsert: bool = option(
        True, "Rows of one key in an upsert become one row.", "hoodie.combine.before.upsert"
    )
    combine_before_delete: bool = option(
        True, "Keys of a delete are taken once.", "hoodie.combine.before.delete"
    )
    duplicates: Literal["none"] = option(
        "none",
        "What an insert does with keys that are there already: nothing, they are written again.",
        "hoodie.datasource.insert.dup.policy",
    )
    drop_duplicates: Literal[False] = option(
        False,
        "Not offered: an insert never looks for its keys in the table.",
        "hoodie.datasource.write.insert.drop.duplicates",
    )
    allow_duplicates_on_insert: bool = option(
        True,
        "An insert into a small file keeps rows of the same key side by side.",
        "hoodie.merge.allow.duplicate.on.inserts",
    )
    reconcile_schema: bool = option(
        False,
        "Columns that the rows lack are filled with null and the table's schema is kept.",
        "hoodie.datasource.write.reconcile.schema",
    )
    null_for_missing_columns: bool = option(
        False,
        "Columns that the rows lack are filled with null.",
        "hoodie.write.set.null.for.missing.columns",
    )
    allow_column_drop: bool = option(
        False,
        "Rows may lack columns for good: the table loses them.",
        "hoodie.datasource.write.schema.allow.auto.evolution.column.drop",
    )
    overwrite_mode: Literal["STATIC", "DYNAMIC"] | None = option(
        None,
        "An overwrite replaces the whole table (STATIC) or the partitions of its rows (DYNAMIC).",
        "hoodie.datasource.overwrite.mode",
    )
    overwrite_partitions: tuple[str, ...] = option(
        (),
        "Partitions that an overwrite replaces, whatever its rows are.",
        "hoodie.static.overwrite.partition.paths",
    )
    delete_partitions: tuple[str, ...] = option(
        (),
        "Partitions that delete_partition deletes; `*` stands for any text.",
        "hoodie.datasource.write.partitions.to.delete",
    )
    merge_settings: Mapping[str, str] = option(
        {}, "Settings of payload classes (`hoodie.payload.*`), by their full names."
    )

    # -- the index ----------------------------------------------------------------------------
    index_type: str | None = option(
        None,
        "How keys are looked up; None: SIMPLE, or BUCKET where the table's files are buckets.",
        "hoodie.index.type",
    )
    bucket_count: int | None = option(
        None,
        "Buckets of a partition of a table with a bucket index.",
        "hoodie.bucket.index.num.buckets",
        ge=1,
    )
    bucket_fields: tuple[str, ...] = option(
        (),
        "Key fields that decide about the bucket; none: all of them.",
        "hoodie.bucket.index.hash.field",
    )
    bucket_keys_as_1x: bool | None = option(
        None,
        "Whether keys with a colon go into buckets as Hudi 1.x has them at table version 6, where "
        "0.x has them elsewhere; None: keys that differ are refused there.",
    )
    bucket_engine: Literal["SIMPLE"] = option(
        "SIMPLE",
        "The bucket index; consistent hashing is not offered.",
        "hoodie.index.bucket.engine",
    )
    filters_from_metadata: bool = option(
        False,
        "A bloom index asks the filters in the metadata table which files to open, where it has "
        "the index bloom_filters.",
        "hoodie.bloom.index.use.metadata",
    )
    moves_partition: bool = option(
        True,
        "With a global index a row whose partition changed moves there; otherwise it is updated "
        "where it is.",
        "hoodie.simple.index.update.partition.path",
        "hoodie.bloom.index.update.partition.path",
        "hoodie.record.index.update.partition.path",
    )
