"""Task failures, lost executors and late attempts on real Spark: every row and file once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("failing_writes.py")
RETRYING = "local[2,4]"
CLUSTER = "local-cluster[2,1,1024]"


def told_by(folder: Path, master: str, failure: str, verb: str) -> dict[str, Any]:
    """What the program says."""
    home = folder / "home"
    home.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":  # what executors leave behind stays in this folder
            (home / entry.name).symlink_to(entry)
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYSPARK_PYTHON")}
    done = subprocess.run(
        [sys.executable, PROGRAM, master, failure, verb, folder / "run"],
        capture_output=True,
        text=True,
        check=False,
        env={**kept, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    assert done.returncode == 0, done.stderr[max(done.stderr.find("Traceback"), 0) :][:4000]
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("verb", ["bulk_insert", "append", "files"])
@pytest.mark.parametrize(
    ("failure", "master"), [("task", RETRYING), ("executor", CLUSTER), ("late", CLUSTER)]
)
def test_attempts_that_fail_leave_exactly_one_file_per_task(
    tmp_path: Path, failure: str, master: str, verb: str
) -> None:
    told = told_by(tmp_path, master, failure, verb)
    assert told["keys"] and told["inserted"] == 90
    # Three tasks with three partitions each, three small files that were filled, or a task per core
    # that reads files.
    tasks = 2 if verb == "files" else 3
    assert told["files"] == (3 if verb == "append" else 3 * tasks)
    own = [name for name in told["data"] if told["instant"] in name]
    assert len(own) == told["files"] and len(told["data"]) == told["files"] + 3
    assert told["failures"] == (tasks if failure == "task" else 1)
    assert told["late"] == ("FencedError" if failure == "late" else None)
    assert not told["pending"] and not told["markers"]
