# ruff: noqa: SLF001  (the JVM is only to be had through PySpark's inner names)
"""The process that holds one real Hudi: Spark with the bundle of one version, driven over pipes.

Runs inside `.venv-hudi` (never imported by the project): `hudi_process.py <jar> <work folder>`.
Requests are JSON lines on stdin, answers JSON lines on stdout, in order:
`{"do": <operation>, ...}` → `{"ok": true, "result": ...}` or `{"ok": false, "error": ..., "trace":
...}`. Everything else that Python, Spark or Hudi prints goes to `<work folder>/log`.

A failing request leaves the process usable; when the JVM is gone, the process ends. Rows travel as
JSON text and become DataFrames inside the JVM, so that no Python worker is ever started. Sessions
are in UTC; timestamps in answers are microseconds.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JNetworkError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType, _parse_datatype_string

SESSION = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.ui.retainedExecutions": "5",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2500m",
    # A machine that sleeps or is busy must not look like a lost executor.
    "spark.network.timeout": "7200s",
    "spark.executor.heartbeatInterval": "3600s",
    # A query that runs out of memory must not end the process.
    "spark.executor.killOnFatalError.depth": "0",
}
# Only the quick compiler: the work is short. Hudi measures objects with a library that otherwise
# starts helper processes, and Hadoop starts one for each permission it sets.
JAVA_OPTIONS = (
    "-Duser.timezone=UTC -XX:+UseSerialGC -XX:TieredStopAtLevel=1 "
    "-Djol.skipHotspotSAAttach=true -Djdk.lang.Process.launchMechanism=VFORK"
)
JVM_GONE = (ConnectionError, Py4JNetworkError)


class Hudi:
    """One Spark session with one Hudi, and the operations on tables."""

    def __init__(self, jar: str, work: Path) -> None:
        builder = SparkSession.builder.master("local[2]").appName("lakewright-interop")
        for key, value in SESSION.items():
            builder = builder.config(key, value)
        scratch = work / "tmp"
        scratch.mkdir(exist_ok=True)
        java_options = f"{JAVA_OPTIONS} -Djava.io.tmpdir={scratch}"
        builder = builder.config("spark.driver.extraJavaOptions", java_options)
        builder = builder.config("spark.driver.extraClassPath", jar)
        builder = builder.config("spark.local.dir", str(work / "spark"))
        builder = builder.config("spark.sql.warehouse.dir", str(work / "warehouse"))
        self.work = work
        self.spark = builder.getOrCreate()
        self.spark.sparkContext.setLogLevel("ERROR")
        self.registered: dict[str, str] = {}

    # -- requests ---------------------------------------------------------------------------

    def steps(self, path: str, name: str, steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Run write steps in order; what each did and how long it took."""
        done = []
        for number, step in enumerate(steps):
            started = time.monotonic()
            try:
                result = self.step(path, name, step)
            except JVM_GONE:
                raise
            except Exception as error:
                raise RuntimeError(
                    f"step {number} ({summary(step)}): {first_line(error)}"
                ) from error
            done.append({"seconds": round(time.monotonic() - started, 2), "result": result})
        return done

    def read(self, path: str, into: str, options: dict[str, str]) -> int:
        """One query of a table by path into one Parquet file; the number of rows."""
        frame = self.spark.read.format("hudi").options(**options).load(path)
        return self.store(frame, into)

    def read_many(self, asked: list[list[str]], threads: int) -> list[str | None]:
        """Snapshots of tables, each path into a Parquet file; what went wrong with each."""

        def read(pair: list[str]) -> str | None:
            path, into = pair
            try:
                self.store_only(self.spark.read.format("hudi").load(path), into)
            except JVM_GONE:
                raise
            except Exception as error:
                return first_line(error)
            return None

        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(read, asked))

    def query(self, sql: str, into: str | None) -> Any:
        """Any SQL; the rows as JSON, or their number after they were stored as one Parquet file."""
        frame = self.spark.sql(sql)
        if into is not None:
            return self.store(frame, into)
        return [json.loads(row) for row in frame._jdf.toJSON().collectAsList()]

    def register(self, path: str, name: str) -> str:
        """Make the table known to SQL under a name."""
        if self.registered.get(name) != path:
            self.spark.sql(f"drop table if exists {name}")
            self.spark.sql(f"create table {name} using hudi location '{path}'")
            self.registered[name] = path
        return name

    def forget(self, name: str) -> None:
        """Drop the name (not the files) from the catalog and the caches."""
        if self.registered.pop(name, None) is not None:
            self.spark.sql(f"drop table if exists {name}")
        self.spark.catalog.clearCache()

    def version(self) -> str:
        """The version of Spark."""
        return str(self.spark.version)

    # -- steps ------------------------------------------------------------------------------

    def step(self, path: str, name: str, step: dict[str, Any]) -> Any:
        kind = step["do"]
        if kind == "write":
            return self.write(path, step)
        if kind == "sql":
            return self.run_sql(path, name, step)
        if kind == "call":
            return self.call(path, name, step)
        if kind == "plan":
            return self.plan(path, step)
        raise ValueError(f"unknown step {kind}")

    def write(self, path: str, step: dict[str, Any]) -> None:
        frame = self.frame(step["schema"], step["rows"])
        options = {"hoodie.datasource.write.operation": step["operation"], **step["options"]}
        writer = frame.write.format("hudi").options(**options).mode(step.get("mode", "append"))
        writer.save(path)

    def run_sql(self, path: str, name: str, step: dict[str, Any]) -> Any:
        if step.get("register", True):
            self.register(path, name)
        source = step.get("source")
        if source is not None:
            self.frame(source["schema"], source["rows"]).createOrReplaceTempView("source")
        text = step["text"].replace("{table}", name).replace("{path}", path)
        return self.set_and_run(text, step.get("settings", {}))

    def call(self, path: str, name: str, step: dict[str, Any]) -> Any:
        arguments = dict(step["arguments"])
        if step.get("by", "path") == "table":
            arguments = {"table": self.register(path, name), **arguments}
        else:
            arguments = {"path": path, **arguments}
        given = ", ".join(f"{key} => {literal(value)}" for key, value in arguments.items())
        return self.set_and_run(f"call {step['procedure']}({given})", step.get("settings", {}))

    def plan(self, path: str, step: dict[str, Any]) -> str | None:
        """Put the plan of a service on the timeline and leave it there; its time, if it has one.

        `clean` is planned by the writer's own rules; `rollback`, at a given time, takes the newest
        pending write back.
        """
        java = self.spark._jvm
        hudi = java.org.apache.hudi
        options = java.PythonUtils.toScalaMap(step["options"])
        client = hudi.HoodieCLIUtils.createHoodieWriteClient(
            self.spark._jsparkSession, path, options, java.scala.Option.apply(None)
        )
        try:
            if step["service"] == "clean":
                kind = hudi.common.model.TableServiceType.CLEAN
                made = client.scheduleTableService(hudi.common.util.Option.empty(), kind)
                return str(made.get()) if made.isPresent() else None
            config, context = client.getConfig(), client.getEngineContext()
            table = hudi.table.HoodieSparkTable.create(config, context)
            writes = table.getMetaClient().getActiveTimeline().getWriteTimeline()
            dead = writes.filterPendingExcludingCompaction().lastInstant().get()
            by_markers = config.shouldRollbackUsingMarkers()
            table.scheduleRollback(context, step["time"], dead, False, by_markers, False)
            return str(step["time"])
        finally:
            client.close()

    def set_and_run(self, text: str, settings: dict[str, str]) -> Any:
        """Run a statement under settings of its own; the rows as JSON values."""
        for key, value in settings.items():
            self.spark.conf.set(key, value)
        try:
            return self.query(text, None)
        finally:
            for key in settings:
                self.spark.conf.unset(key)

    # -- frames -----------------------------------------------------------------------------

    def frame(self, ddl: str, rows: list[dict[str, Any]]) -> DataFrame:
        """Rows as a DataFrame of the given columns, made inside the JVM from JSON text."""
        java = self.spark._jvm
        lines = java.java.util.ArrayList()
        for row in rows:
            lines.append(json.dumps(row, ensure_ascii=False))
        session = self.spark._jsparkSession
        texts = session.createDataset(lines, java.org.apache.spark.sql.Encoders.STRING())
        schema = _parse_datatype_string(ddl)
        assert isinstance(schema, StructType)
        reader = self.spark.read.schema(schema).option("mode", "FAILFAST")._jreader
        frame = DataFrame(reader.json(texts), self.spark)
        return frame.coalesce(1)

    def store(self, frame: DataFrame, into: str) -> int:
        """Write a DataFrame as exactly one Parquet file; the number of rows."""
        self.store_only(frame, into)
        return int(self.spark.read.parquet(into).count())

    def store_only(self, frame: DataFrame, into: str) -> None:
        """Write a DataFrame as exactly one Parquet file."""
        target = Path(into)
        target.parent.mkdir(parents=True, exist_ok=True)
        folder = target.with_name(target.name + ".tmp")
        shutil.rmtree(folder, ignore_errors=True)
        frame.coalesce(1).write.parquet(str(folder))
        parts = sorted(folder.glob("part-*.parquet"))
        if len(parts) != 1:
            raise RuntimeError(f"{len(parts)} part files where one was expected")
        parts[0].replace(target)
        shutil.rmtree(folder)


def literal(value: Any) -> str:
    """A Python value as an SQL literal."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return "'" + str(value).replace("'", "\\'") + "'"


def summary(step: dict[str, Any]) -> str:
    """A few words on a step, for messages."""
    named = step.get("operation") or step.get("procedure") or step.get("service")
    detail = named or step.get("text", "")[:60]
    return f"{step['do']} {detail}".strip()


def first_line(error: BaseException) -> str:
    """What went wrong in one line, with the innermost cause of a Java exception."""
    text = str(error)
    causes = [line for line in text.splitlines() if line.startswith("Caused by:")]
    head = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    java = next((line for line in text.splitlines() if line.startswith(": ")), "")
    return " | ".join(part[:300] for part in (head, java, causes[-1] if causes else "") if part)


def serve(hudi: Hudi, requests: Any, answer: Callable[[dict[str, Any]], None]) -> None:
    """Answer requests until stdin ends."""
    for line in requests:
        request = json.loads(line)
        operation = getattr(hudi, request.pop("do"))
        try:
            answer({"ok": True, "result": operation(**request)})
        except JVM_GONE:
            raise SystemExit("the JVM is gone") from None
        except Exception as error:
            trace = "".join(traceback.format_exception(error))
            answer({"ok": False, "error": first_line(error), "trace": trace[-20000:]})


def main() -> None:
    """Keep the real stdout for answers, send every other output to the log, then serve."""
    jar, work = sys.argv[1], Path(sys.argv[2])
    work.mkdir(parents=True, exist_ok=True)
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
    log = os.open(work / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)

    def answer(value: dict[str, Any]) -> None:
        pipe.write(json.dumps(value) + "\n")
        pipe.flush()

    hudi = Hudi(jar, work)
    answer({"ok": True, "result": hudi.version()})
    serve(hudi, sys.stdin, answer)
    hudi.spark.stop()


if __name__ == "__main__":
    main()
