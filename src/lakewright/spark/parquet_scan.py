"""Whether a DataFrame is nothing but a scan of Parquet files, and of which ones.

Asked is the plan that Spark has optimised: a relation of its own Parquet format over files that it
listed itself, or a choice of that relation's columns, and nothing else. A filter, an expression, a
renamed column, a cache, partition columns, buckets, a table of a catalog, another format, or an
option or setting that lets Spark read files in another way than they are, and the answer is why it
is not one. A Spark whose plans look different is told so as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from lakewright.errors import ConfigError

__all__ = ["SWITCH", "ScannedFile", "scanned_files"]

SWITCH = "spark.lakewright.directParquet"
"""The setting of a session that turns direct reading off."""
FILES_MAX = 512
"""The driver looks at every file; from more of them the rows come through Spark."""

SWITCHED_OFF = "switched_off"
NOT_A_SCAN = "not_a_scan"
OPTIONS = "options"
PARTITIONED = "partitioned"
MANY_FILES = "many_files"
NO_DATA_FILES = "no_data_files"

_SOURCES = "org.apache.spark.sql.execution.datasources."
_PROJECT = "org.apache.spark.sql.catalyst.plans.logical.Project"
_ATTRIBUTE = "org.apache.spark.sql.catalyst.expressions.AttributeReference"
_RELATION = _SOURCES + "LogicalRelation"
_FILES = _SOURCES + "HadoopFsRelation"
_FORMAT = _SOURCES + "parquet.ParquetFileFormat"
_LISTED = _SOURCES + "InMemoryFileIndex"
_HARMLESS = frozenset({"path", "paths"})
_LENIENT = (
    "spark.sql.files.ignoreCorruptFiles",
    "spark.sql.files.ignoreMissingFiles",
    "spark.sql.parquet.mergeSchema",
    "spark.sql.parquet.fieldId.read.enabled",
)
_NOT_DATA = (".", "_")


@dataclass(frozen=True, slots=True)
class ScannedFile:
    """A file as Spark listed it."""

    uri: str
    size: int
    modified_ms: int


def scanned_files(frame: DataFrame) -> tuple[ScannedFile, ...] | str:
    """The files whose rows are the rows of a frame, in Spark's order; or why there are none."""
    spark = frame.sparkSession
    if not _switched_on(spark):
        return SWITCHED_OFF
    if any(_setting(spark, key, "false") != "false" for key in _LENIENT):
        return OPTIONS
    try:
        return _files(_relation(frame._jdf.queryExecution().optimizedPlan()))  # noqa: SLF001
    except Py4JError:
        return NOT_A_SCAN


def _switched_on(spark: SparkSession) -> bool:
    said = _setting(spark, SWITCH, "true")
    if said not in ("true", "false"):
        raise ConfigError(
            f"{SWITCH} is {said!r}, which is neither true nor false.",
            hint="Set it to false to let all rows come through Spark, or leave it out.",
            context={"key": SWITCH},
        )
    return said == "true"


def _setting(spark: SparkSession, key: str, default: str) -> str:
    return str(spark.conf.get(key, default)).strip().lower()


def _relation(plan: Any) -> Any | None:
    """The relation that a plan reads as it is; None where it does anything else."""
    names: list[str] = []
    if _is_a(plan, _PROJECT):
        columns = plan.projectList()
        if not all(_is_a(columns.apply(i), _ATTRIBUTE) for i in range(columns.size())):
            return None
        names = [str(columns.apply(i).name()) for i in range(columns.size())]
        plan = plan.child()
    if not _is_a(plan, _RELATION) or plan.isStreaming() or plan.catalogTable().isDefined():
        return None
    relation = plan.relation()
    if not _is_a(relation, _FILES) or not _is_a(relation.fileFormat(), _FORMAT):
        return None
    stored = set(relation.dataSchema().fieldNames())
    return relation if stored.issuperset(names) else None  # not what Spark tells about files


def _files(relation: Any | None) -> tuple[ScannedFile, ...] | str:
    if relation is None or not _is_a(relation.location(), _LISTED):
        return NOT_A_SCAN
    if not relation.partitionSchema().isEmpty() or relation.bucketSpec().isDefined():
        return PARTITIONED
    options = str(relation.options().keySet().mkString("\n")).lower().split("\n")
    if not _HARMLESS.issuperset(filter(None, options)):
        return OPTIONS
    listed = relation.location().allFiles()
    if listed.size() > FILES_MAX:
        return MANY_FILES
    found = tuple(_file(listed.apply(i)) for i in range(listed.size()))
    if any(not f.size or f.uri.rpartition("/")[2].startswith(_NOT_DATA) for f in found):
        return NO_DATA_FILES  # Spark passes over them
    return found


def _file(status: Any) -> ScannedFile:
    return ScannedFile(
        str(status.getPath().toString()), int(status.getLen()), int(status.getModificationTime())
    )


def _is_a(thing: Any, name: str) -> bool:
    return bool(thing.getClass().getName() == name)
