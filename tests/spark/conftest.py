"""One Spark session for all tests of this folder; nothing is collected where there is no Spark."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

if find_spec("pyspark") is None:
    collect_ignore_glob = ["test_*.py"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep these tests in one process, where they are spread with `loadgroup`: a session is dear."""
    if config.pluginmanager.hasplugin("xdist"):
        here = Path(__file__).parent
        for item in items:
            if here in item.path.parents:
                item.add_marker(pytest.mark.xdist_group("spark"))


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
