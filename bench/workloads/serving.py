"""What every warm process does: start Spark, take requests, answer them.

Programs run in the environment of their contenders (real Hudi has one of its own), so they import
nothing of the project but this file beside them and, where that is measured, the product itself.
They are started as `program.py <work folder> <jar or ->`. Requests are JSON lines on stdin, answers
JSON lines on stdout: `{"seconds": ..., "result": ...}`, or `{"error": ...}`.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CONFIG = {
    "spark.driver.memory": "3g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.network.timeout": "7200s",
    "spark.executor.heartbeatInterval": "3600s",
}
HUDI = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
}


def started(work: Path, jar: str) -> Any:
    """A session of two cores; with lakewright's own settings unless it is Hudi's."""
    config = {**CONFIG, "spark.local.dir": str(work), "spark.sql.warehouse.dir": str(work / "w")}
    if jar == "-":
        from lakewright.spark import session

        spark = session("bench", master="local[2]", config=config)
    else:
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master("local[2]").appName("bench")
        for key, value in {**config, **HUDI, "spark.driver.extraClassPath": jar}.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
    atexit.register(spark.stop)
    return spark


def serve(ready: Callable[[Path, str], Callable[[dict[str, Any]], Any]]) -> None:
    """Get ready, then answer one request after the other; what else is printed goes to the log."""
    work, jar = Path(sys.argv[1]), sys.argv[2]
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
    log = os.open(work / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    answer = ready(work, jar)
    _tell(pipe, {"seconds": 0.0, "result": "ready"})
    for line in sys.stdin:
        began = time.perf_counter()
        try:
            result = answer(json.loads(line))
        except Exception as error:  # told to the other side
            _tell(pipe, {"error": f"{type(error).__name__}: {_reason(error)}"})
            continue
        _tell(pipe, {"seconds": time.perf_counter() - began, "result": result})


def _reason(error: Exception) -> str:
    """What an error says; of one from the JVM, what caused it in the first place."""
    told = str(error)
    causes = [line for line in told.splitlines() if line.startswith("Caused by: ")]
    return (causes[-1] if causes else told)[:2000]


def _tell(pipe: Any, answer: dict[str, Any]) -> None:
    pipe.write(json.dumps(answer) + "\n")
    pipe.flush()
