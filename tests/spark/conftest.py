"""One Spark session for all tests of this folder; nothing is collected where there is no Spark."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

if find_spec("pyspark") is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session of two cores, made by the product's own helper."""
    from lakewright.spark import session

    scratch = tmp_path_factory.mktemp("spark")
    made = session(
        "tests",
        master="local[2]",
        config={
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            "spark.local.dir": str(scratch),
            "spark.driver.memory": "1g",
            "spark.executor.heartbeatInterval": "1h",  # a machine may be busy with other things
            "spark.network.timeout": "2h",
            "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        },
    )
    yield made
    made.stop()
