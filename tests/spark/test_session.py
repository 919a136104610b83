"""The session helper: settings, existing sessions, shipping, and what workers lack."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import textwrap
import venv
import zipfile
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakewright.errors import ConfigError
from lakewright.spark import probe, register, session
from lakewright.spark.shipping import package_zip

session_module = import_module("lakewright.spark.session")


def test_a_session_is_quiet_in_utc_and_runs_this_interpreter(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.execution.arrow.pyspark.enabled") == "true"
    assert spark.sparkContext.getConf().get("spark.driver.host") == "127.0.0.1"
    (report,) = probe(spark)
    assert report.python == sys.executable and report.missing == ()
    assert set(report.versions) == {"isal", "lakewright", "numpy", "pyarrow", "pydantic"}


def test_an_existing_session_is_taken_as_it_is(spark: SparkSession) -> None:
    assert session(existing=spark) is spark
    assert session() is spark
    assert session(config={"spark.sql.shuffle.partitions": "2"}) is spark
    with pytest.raises(ConfigError, match=r"local\[2\]"):
        session(master="local[4]")
    with pytest.raises(ConfigError, match=r"spark\.driver\.memory"):
        session(existing=spark, config={"spark.driver.memory": "9g"})


def test_a_session_of_another_thread_is_found_and_not_changed(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        with ThreadPoolExecutor(1) as other:
            found = other.submit(session).result()
        assert found.sparkContext is spark.sparkContext
        assert found.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_the_master_is_left_to_spark_where_something_else_may_say_it() -> None:
    host = "spark.driver.host"
    assert settings_of(None, {}, {}) == ("local[*]", "127.0.0.1")
    assert settings_of("local[2]", {host: "me"}, {}) == ("local[2]", "me")
    assert settings_of("local-cluster[2,1,1024]", {}, {})[1] == "127.0.0.1"
    assert settings_of("spark://host:7077", {}, {}) == ("spark://host:7077", None)
    for variable in ("PYSPARK_GATEWAY_PORT", "MASTER", "SPARK_HOME"):
        assert settings_of(None, {}, {variable: "x"}) == (None, None)


def settings_of(
    master: str | None, given: dict[str, str], environment: dict[str, str]
) -> tuple[str | None, str | None]:
    chosen, settings = session_module._settings(master, given, environment)
    return chosen, settings.get("spark.driver.host")


def test_the_format_is_registered_where_spark_has_the_means(spark: SparkSession) -> None:
    assert register(spark) == (int(spark.version.split(".")[0]) >= 4)


@pytest.mark.slow
def test_the_package_travels_as_a_zip_that_is_the_same_every_time(tmp_path: Path) -> None:
    name, content = package_zip()
    assert package_zip() == (name, content)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = archive.namelist()
    assert "lakewright/__init__.py" in names and "lakewright/spark/tasks.py" in names
    assert not [n for n in names if "__pycache__" in n or "/cli/" in n or "/testing/" in n]
    (tmp_path / name).write_bytes(content)
    program = "import lakewright.spark.tasks as t; print(t.__file__)"
    done = subprocess.run(
        [
            sys.executable,
            "-S",
            "-c",
            f"import sys; sys.path[:0] = {_paths(tmp_path / name)}\n{program}",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert name in done.stdout


def _paths(archive: Path) -> list[str]:
    return [str(archive), *[p for p in sys.path if p.endswith("site-packages")]]


@pytest.mark.slow
def test_workers_without_packages_are_named_with_what_to_install(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    venv.create(bare, with_pip=False)
    program = f"""
        import os
        from pyspark.sql import SparkSession
        from lakewright.errors import MissingDependencyError
        from lakewright.spark import session
        try:
            session(
                master="local[1]",
                config={{"spark.ui.enabled": "false", "spark.pyspark.python": "{bare}/bin/python"}},
            )
        except MissingDependencyError as error:
            print(error)
        print(SparkSession.getActiveSession(), "PYSPARK_PYTHON" in os.environ)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=True,
        env={k: v for k, v in os.environ.items() if k != "PYSPARK_PYTHON"},
    )
    said = done.stdout
    assert said.endswith("None False\n")
    assert "lack numpy, pyarrow, pydantic" in said or "lack lakewright" in said
    assert f"{bare}/bin/python" in said and "pyarrow==" in said
