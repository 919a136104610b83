"""Reading on real multi-process Spark, with workers that have the package from the session alone.

The workers run an interpreter that has Spark, Arrow and pydantic but not lakewright; the executors
are other processes than the driver, on `local-cluster` and under a standalone master with two
workers on loopback.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pyspark
import pytest

from tests.corpus import committed_tables

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("on_cluster.py")
HOST = "127.0.0.1"


@pytest.fixture(scope="module")
def worker_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with everything that is installed here, but not what is installed editable."""
    folder = tmp_path_factory.mktemp("workers") / "venv"
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "here.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = folder / "bin" / "python"
    lacks = subprocess.run(
        [python, "-c", "import numpy, pyarrow, pydantic, pyspark; import lakewright"],
        capture_output=True,
        text=True,
        check=False,
        env=environment(folder),
    )
    assert "No module named 'lakewright'" in lacks.stderr
    return python


@pytest.fixture(scope="module")
def spark_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Spark as it is installed, with a folder of its own for what executors leave behind."""
    home = tmp_path_factory.mktemp("spark_home")
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    return home


@contextmanager
def spark_process(home: Path, kind: str, *arguments: str, says: str) -> Iterator[str]:
    """A process of Spark's own; the line of its log that has `says`."""
    process = subprocess.Popen(
        [home / "bin" / "spark-class", f"org.apache.spark.deploy.{kind}", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env=environment(home),
    )
    assert process.stderr is not None
    seen = []
    try:
        for line in process.stderr:
            seen.append(line)
            if says in line:
                break
        else:
            pytest.fail(f"{kind} ended:\n{''.join(seen)}")
        rest = Thread(target=process.stderr.read)  # so that its log never fills the pipe
        rest.start()
        yield seen[-1]
    finally:
        process.terminate()
        process.wait(timeout=60)
    rest.join()


@pytest.fixture(scope="module")
def standalone(spark_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a standalone master that has two workers."""
    folder = tmp_path_factory.mktemp("standalone")
    ports = ("--host", HOST, "--port", "0", "--webui-port", "0")
    started = "Starting Spark master at "
    with spark_process(spark_home, "master.Master", *ports, says=started) as line:
        master = line.partition(started)[2].strip()
        own = [(*ports, "-c", "1", "-m", "1g", "-d", f"{folder}/{n}", master) for n in "ab"]
        joined = "Successfully registered with master"
        with (
            spark_process(spark_home, "worker.Worker", *own[0], says=joined),
            spark_process(spark_home, "worker.Worker", *own[1], says=joined),
        ):
            yield master


def environment(home: Path) -> dict[str, str]:
    """Without what would let workers find the package by another way."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYSPARK_PYTHON")}
    return {**kept, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": HOST}


def told_by(home: Path, master: str, python: Path, table: Path, folder: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, PROGRAM, master, python, table, folder / "run"],
        capture_output=True,
        text=True,
        check=False,
        env=environment(home),
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("local-cluster", "v6_mor_pending_compaction_simple"),
        ("standalone", "v8_mor_archived_simple"),
    ],
)
def test_a_cluster_reads_filters_joins_and_follows_with_the_shipped_package(
    request: pytest.FixtureRequest,
    kind: str,
    name: str,
    spark_home: Path,
    worker_python: Path,
    tmp_path: Path,
) -> None:
    master = "local-cluster[2,1,2048]"
    if kind == "standalone":
        master = request.getfixturevalue("standalone")
    table = next(t for t in committed_tables() if t.name == name).unpack(tmp_path)
    told = told_by(spark_home, master, worker_python, table, tmp_path)
    for python, location, missing in told.pop("workers"):
        assert python == str(worker_python) and missing == []
        assert ".zip/lakewright/" in location
    executors = told.pop("executors")
    assert len({folder for folder, _ in executors}) == 2
    for folder, location in executors:
        assert location.startswith(f"{folder}/lakewright-") and ".zip/lakewright/" in location
    assert told.pop("slices")["workers"] > 0 and told.pop("rows") > 0
    same = {"read", "filter", "join", "changes"}
    if pyspark.__version__ >= "4":
        same |= {"format", "stream"}
    assert told == dict.fromkeys(same, True)
