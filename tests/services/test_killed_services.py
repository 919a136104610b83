"""Services whose processes are killed or stand still, beside rivals and a writer: real ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_whenever_a_service_is_killed_or_stopped_others_finish_it_and_the_table_is_right() -> None:
    command = [sys.executable, "-m", "interop.service_kills", "--runs", "120", "--spark", "0"]
    done = subprocess.run(
        [*command, "--hudi", "0", "--at-once", "2", "--only", "*-v8_mor-*"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", 0 failed" in done.stdout.splitlines()[-1]
