"""lakewright on Spark: a ready session, tables as DataFrames, and the format `lakewright`.

>>> from lakewright.spark import SparkTable, session
>>> spark = session("pipeline")                                             # doctest: +SKIP
>>> trips = SparkTable.open(spark, "demo/trips")                            # doctest: +SKIP
>>> trips.read(where="city = 'sf'").show()                                  # doctest: +SKIP
>>> trips.append(spark.read.parquet("new_trips"))                           # doctest: +SKIP

Works on PySpark 3.5 and 4; the format `lakewright` needs 4.0.
"""

from __future__ import annotations

from lakewright.errors import MissingDependencyError

try:
    import pyspark  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingDependencyError(
        "PySpark is not installed.", hint='Run: pip install "lakewright[spark]"'
    ) from error

from lakewright.spark.keyed_merge import (
    when_matched_delete,
    when_matched_update,
    when_not_matched_insert,
)
from lakewright.spark.session import register, session
from lakewright.spark.shipping import WorkerReport, probe
from lakewright.spark.table import SparkReadPlan, SparkTable

__all__ = [
    "SparkReadPlan",
    "SparkTable",
    "WorkerReport",
    "probe",
    "register",
    "session",
    "when_matched_delete",
    "when_matched_update",
    "when_not_matched_insert",
]
