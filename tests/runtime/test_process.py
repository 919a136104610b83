"""Processes: dead only if that is certain."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

from lakewright.runtime.process import ProcessIdentity, SystemProcesses


def test_the_own_process_and_its_text() -> None:
    mine = SystemProcesses().own
    assert ProcessIdentity.from_json(mine.to_json()) == mine
    assert not SystemProcesses().is_dead(mine)
    assert ProcessIdentity.from_json("{}") is None and ProcessIdentity.from_json(b"\xff") is None


def test_a_process_that_ended_is_dead_and_a_reused_number_does_not_hide_it() -> None:
    code = (
        "from lakewright.runtime.process import SystemProcesses;"
        "print(SystemProcesses().own.to_json())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    gone = ProcessIdentity.from_json(done.stdout)
    assert gone is not None and SystemProcesses().is_dead(gone)
    reused = replace(SystemProcesses().own, started="1")
    assert SystemProcesses().is_dead(reused)


def test_of_other_boots_machines_and_containers_nothing_is_known() -> None:
    mine = SystemProcesses().own
    for boot in ("", "another"):
        assert not SystemProcesses().is_dead(replace(mine, boot=boot, pid=999_999_999))
