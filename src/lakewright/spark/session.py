"""A SparkSession on which everything works.

Guarantees of a session made here: workers run the driver's interpreter (or the one that is
configured), timestamps are shown in UTC, Arrow is on, logs are quiet, and on Spark 4 the format
`lakewright` is known to `spark.read`, `spark.readStream` and SQL. Where workers are other processes
than the driver's, the package is shipped to them, and they are asked whether they have what
reading needs.

An existing session is taken as it is: its settings are not changed, but for those given in
`config`. A new session whose workers lack something is stopped again, so that the next one can be
made with other settings.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib import resources

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakewright.errors import ConfigError, MissingDependencyError
from lakewright.spark.shipping import require_workers, ship_package

__all__ = ["register", "session", "tasks_run_here"]

PYTHON = "spark.pyspark.python"
PYTHON_VARIABLE = "PYSPARK_PYTHON"
DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "32",
    "spark.ui.showConsoleProgress": "false",
}
"""Settings of new sessions. Spark's own default for listing files is one task per file."""
MASTER = "spark.master"
EVERY_CORE = "local[*]"
TOLD_ELSEWHERE = frozenset(
    {"MASTER", "PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "SPARK_HOME"}
)
"""Variables with which spark-submit or an installation of Spark may say where to run."""
ADDRESS = "127.0.0.1"
LOOPBACK = {"spark.driver.host": ADDRESS, "spark.driver.bindAddress": ADDRESS}
JAVA_OPTIONS = "spark.driver.extraJavaOptions"


def session(
    app_name: str = "lakewright",
    *,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    existing: SparkSession | None = None,
) -> SparkSession:
    """A session with what lakewright needs; `existing` or the active one if there is one.

    `master` is any master Spark knows; without one, what spark-submit or the configuration says, or
    all cores of this machine. `config` is set last and wins.

    >>> spark = session("pipeline", master="local[4]")                      # doctest: +SKIP
    """
    settings = dict(config or {})
    found = existing or _running()
    if found is not None:
        return _prepared(_adopted(found, master, settings))
    before = os.environ.get(PYTHON_VARIABLE)
    spark = _created(app_name, master or settings.get(MASTER), settings)
    try:
        return _prepared(spark)
    except MissingDependencyError:
        spark.stop()
        os.environ.pop(PYTHON_VARIABLE)
        if before is not None:
            os.environ[PYTHON_VARIABLE] = before
        raise


def register(spark: SparkSession) -> bool:
    """Make the format `lakewright` known to a session; False on Spark 3.5, which lacks the means.

    `session` has done it.
    """
    try:
        from lakewright.spark.data_source import LakewrightDataSource
    except ImportError:
        return False
    spark.dataSource.register(LakewrightDataSource)
    return True


def tasks_run_here(spark: SparkSession) -> bool:
    """Whether the machine of the driver is all that there is."""
    master = spark.sparkContext.master or ""
    return master == "local" or master.startswith("local[")


def _running() -> SparkSession | None:
    """The session of this process, also if another thread made it."""
    active = SparkSession.getActiveSession()
    if active is None and SparkContext._active_spark_context is not None:  # noqa: SLF001
        return SparkSession.builder.getOrCreate()
    return active


def _prepared(spark: SparkSession) -> SparkSession:
    if not _workers_are_here(spark):
        ship_package(spark)
        require_workers(spark)
    register(spark)
    return spark


def _created(app_name: str, master: str | None, settings: dict[str, str]) -> SparkSession:
    os.environ[PYTHON_VARIABLE] = settings.get(PYTHON) or os.environ.get(
        PYTHON_VARIABLE, sys.executable
    )
    master, chosen = _settings(master, settings, os.environ)
    if master is not None and master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", ADDRESS)
    builder = SparkSession.builder.appName(app_name)
    if master is not None:
        builder = builder.master(master)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except PySparkException as error:
        if "JAVA_GATEWAY_EXITED" not in str(error):
            raise
        raise MissingDependencyError(
            "Spark's Java process did not start.",
            hint="Install Java 17, on which every supported Spark runs, and set JAVA_HOME or put "
            "java on the path. What Java said is above.",
        ) from error
    spark.sparkContext.setLogLevel(settings.get("spark.log.level", "ERROR"))
    return spark


def _settings(
    master: str | None, given: Mapping[str, str], environment: Mapping[str, str]
) -> tuple[str | None, dict[str, str]]:
    """The master, None if Spark finds it by itself, and the settings of a new session."""
    if master is None and TOLD_ELSEWHERE.isdisjoint(environment):
        master = EVERY_CORE
    local = master is not None and master.startswith("local")
    chosen = {**DEFAULTS, **(LOOPBACK if local else {}), **given}
    chosen[JAVA_OPTIONS] = f"{_quiet_logs()} {given.get(JAVA_OPTIONS, '')}".strip()
    return master, chosen


def _quiet_logs() -> str:
    """The option that keeps Java's start quiet; nothing if the package lies in a zip."""
    with resources.as_file(resources.files(__package__) / "log4j2.properties") as path:
        return f"-Dlog4j2.configurationFile={path.as_uri()}" if path.parent.name == "spark" else ""


def _adopted(spark: SparkSession, master: str | None, settings: dict[str, str]) -> SparkSession:
    if not hasattr(spark, "_jsparkSession"):
        raise ConfigError(
            "A Spark Connect session cannot be prepared from here.",
            hint='Call lakewright.spark.register(spark), then spark.read.format("lakewright").',
        )
    has = spark.sparkContext.master
    if master is not None and master != has:
        raise ConfigError(
            f"There is a session already, on {has}; it cannot move to {master}.",
            hint="Stop it first (spark.stop()), or leave master out.",
            context={"master": has, "wanted": master},
        )
    for key, value in settings.items():
        if not spark.conf.isModifiable(key):
            raise ConfigError(
                f"{key} cannot be changed on a session that is running.",
                hint="Set it when the session is made.",
                context={"key": key},
            )
        spark.conf.set(key, value)
    return spark


def _workers_are_here(spark: SparkSession) -> bool:
    """Whether workers are children of this machine's driver and run its interpreter."""
    return tasks_run_here(spark) and spark.sparkContext.pythonExec == sys.executable
