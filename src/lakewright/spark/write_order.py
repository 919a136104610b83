"""The order of a bulk insert on Spark: rows are moved between tasks here, and sorted within them.

Sort modes that promise something about all rows (a global sort, one task per partition path) move
rows by Spark expressions over their keys; every worker then sorts its own rows as Arrow. Where the
keys cannot be expressed in Spark, a pass through Python adds them to the rows first. How rows are
moved decides only about balance and promised order, never about what is written: a worker forms
the keys that are stored.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - how Spark's users write it
from pyspark.sql.types import StringType, StructField, StructType

from lakewright.engine.file_options import SortMode
from lakewright.engine.sorting import Arrangement, arrangement, sorted_batches
from lakewright.engine.write_job import BegunWrite, WriteJob
from lakewright.errors import LakewrightError
from lakewright.format.key_spec import KeySpec
from lakewright.format.row_keys import PARTITION_PATH, RECORD_KEY, RowKeys
from lakewright.format.write_schema import RowConversion
from lakewright.spark.filters import column_of
from lakewright.spark.tasks import pack
from lakewright.spark.write_frame import KeyColumns, as_sent, key_columns

__all__ = ["arranged", "moves_rows", "order_in_tasks", "with_key_columns"]

BY_PARTITION = (SortMode.PARTITION_PATH_REPARTITION, SortMode.PARTITION_PATH_REPARTITION_AND_SORT)


def order_in_tasks(job: WriteJob, begun: BegunWrite) -> Arrangement:
    """The order of rows within each task.

    A sort column that the rows lack, or that has no order, is an `OptionError`.
    """
    order = _order(job, begun)
    list(sorted_batches((), begun.context.incoming_schema, order, memory_bytes=0))
    return replace(order, whole=bool(order.columns))


def arranged(job: WriteJob, frame: DataFrame, order: Arrangement) -> DataFrame:
    """The frame with its rows in the right tasks."""
    tasks = job.options.bulk_insert_parallelism
    if _ranges_rows(job):
        frame, columns = _moved_by(job, frame, order.columns)
        if columns:
            last = [column.asc_nulls_last() for column in columns]  # as workers sort them
            frame = _repartition(frame.repartitionByRange, tasks, last)
    elif moves_rows(job):
        frame, columns = _moved_by(job, frame, (PARTITION_PATH,))
        frame = _repartition(frame.repartition, tasks, columns)
    elif tasks:
        frame = frame.coalesce(tasks)
    return frame.select(*map(column_of, job.schema.rows.source.names))


def moves_rows(job: WriteJob) -> bool:
    """Whether rows are written by other tasks than those that have them first."""
    gathers = job.options.sort_mode in BY_PARTITION and bool(job.keys.partition_fields)
    return _ranges_rows(job) or gathers


def _ranges_rows(job: WriteJob) -> bool:
    return bool(job.options.sort_columns) or job.options.sort_mode is SortMode.GLOBAL_SORT


def _order(job: WriteJob, begun: BegunWrite) -> Arrangement:
    fields = job.keys.record_key_fields
    # Keys that are generated follow the order of the rows; there is nothing to sort by.
    keys = (RECORD_KEY,) if begun.context.populate_meta and fields else fields
    return arrangement(
        job.options.sort_mode,
        sort_columns=job.options.sort_columns,
        record_key_last=job.options.sort_by_record_key_last,
        key_columns=keys,
    )


def _repartition(
    move: Callable[..., DataFrame], tasks: int, columns: Sequence[Column]
) -> DataFrame:
    """Without a number Spark chooses one, and joins small tasks afterwards."""
    return move(tasks, *columns) if tasks else move(*columns)


def _moved_by(
    job: WriteJob, frame: DataFrame, names: Sequence[str]
) -> tuple[DataFrame, list[Column]]:
    """A frame, and those of the named columns that can tell its rows apart, as expressions."""
    keyed = with_key_columns(
        frame,
        job.keys,
        job.schema.rows,
        wanted=[name for name in names if name in (RECORD_KEY, PARTITION_PATH)],
    )
    own = {RECORD_KEY: keyed[1].record_key, PARTITION_PATH: keyed[1].partition_path}
    found: list[Column] = []
    for name in names:
        known = own.get(name)
        if name == PARTITION_PATH and not job.keys.partition_fields:
            continue
        if known is not None:
            found.append(known)
        elif name.partition(".")[0] in job.schema.rows.source.names:
            found.append(column_of(*name.split(".")))
    return keyed[0], found


def with_key_columns(
    frame: DataFrame, spec: KeySpec, rows: RowConversion, *, wanted: Sequence[str]
) -> tuple[DataFrame, KeyColumns]:
    """A frame and expressions over it for the wanted ones of its keys.

    The frame is the same one where Spark can form them, and otherwise one that has them as columns.
    """
    columns = key_columns(spec, rows.source, rows.schema)
    lacks_key = RECORD_KEY in wanted and columns.record_key is None
    lacks_path = PARTITION_PATH in wanted and columns.partition_path is None
    if not (lacks_key or lacks_path):
        return frame, columns
    return _keyed_by_python(frame, spec, rows), KeyColumns(F.col(RECORD_KEY), F.col(PARTITION_PATH))


def _keyed_by_python(frame: DataFrame, spec: KeySpec, rows: RowConversion) -> DataFrame:
    shared = pack((spec, rows))

    def add(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spec, rows = pickle.loads(shared)  # noqa: S301 - made by `pack`
        for batch in batches:
            keys, paths = _keys_of(batch, spec, rows)
            yield batch.append_column(RECORD_KEY, keys).append_column(PARTITION_PATH, paths)

    added = [StructField(name, StringType()) for name in (RECORD_KEY, PARTITION_PATH)]
    return frame.mapInArrow(add, StructType([*frame.schema.fields, *added]))


def _keys_of(
    batch: pa.RecordBatch, spec: KeySpec, rows: RowConversion
) -> tuple[pa.Array, pa.Array]:
    """Keys and paths. Rows that cannot have any get none here: the write itself says what is
    wrong with them, in words that reach the caller."""
    try:
        keyed = RowKeys(spec, instant="").add_to(rows.apply(as_sent(batch, rows.source)))
    except LakewrightError:
        none = pa.nulls(batch.num_rows, pa.string())
        return none, none
    return keyed.column(RECORD_KEY), keyed.column(PARTITION_PATH)
