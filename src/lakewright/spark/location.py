"""Where the JVM finds a table: the same place under the name that Hadoop's file systems use.

lakewright opens storage by itself; Spark's Parquet scan needs a Hadoop file system for it, which
may be missing or lack credentials. `jvm_root` finds out by looking for the table's own folder.
"""

from __future__ import annotations

import re

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from lakewright.format.table_properties import META_FOLDER
from lakewright.storage.uri import StorageUri

__all__ = ["jvm_root", "literal_path"]

_PATTERN_CHARACTERS = re.compile(r"([{}\[\]*?\\])")
HADOOP_SCHEMES = {"s3": ("s3a", "s3"), "gs": ("gs",), "abfss": ("abfss",), "file": ("file",)}


def jvm_root(spark: SparkSession, place: StorageUri) -> str | None:
    """The root of the table as a Hadoop path, or None if the JVM cannot open it."""
    for scheme in HADOOP_SCHEMES.get(place.scheme, ()):
        root = _named(place, scheme)
        if _opens(spark, f"{root}/{META_FOLDER}"):
            return root
    return None


def literal_path(path: str) -> str:
    """A path for Spark's readers, which take its special characters for those of a pattern."""
    return _PATTERN_CHARACTERS.sub(r"\\\1", path)


def _named(place: StorageUri, scheme: str) -> str:
    if place.scheme == "file":
        return f"{scheme}:{place.path}"
    return f"{scheme}:{str(place).partition(':')[2]}"


def _opens(spark: SparkSession, folder: str) -> bool:
    context = spark.sparkContext
    jvm = context._jvm  # noqa: SLF001 - Spark offers no other way to ask for a file system
    assert jvm is not None
    configuration = context._jsc.hadoopConfiguration()  # noqa: SLF001
    try:
        path = jvm.org.apache.hadoop.fs.Path(folder)
        return bool(path.getFileSystem(configuration).exists(path))
    except Py4JError:
        return False
