"""What Hudi does to the serviced tables.

Each function is a step: it lets Hudi write, service or plan, tells the model, and asks what only it
can ask. What a dead process of Hudi's leaves is made of Hudi's own files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from interop import keyed_steps
from interop.generate import FAILING_CHECK, call
from interop.histories import ARCHIVE, PLAN_COMPACTION
from interop.hudi import Hudi, HudiRefusedError
from interop.instants import folder_of
from interop.keyed_steps import Finding
from interop.serviced_ours import EVERY_WRITE
from interop.serviced_table import ServicedTable, read_by
from interop.written_steps import CLEAN, COMPACT
from lakewright.format.cleaned_files import files_of_plan
from lakewright.format.records import load_cleaner_plan

Does = Callable[[ServicedTable, Hudi], bool | None]

JOINED = {
    "hoodie.timeline.compaction.batch.size": "2",
    "hoodie.archive.merge.enable": "true",
    "hoodie.archive.merge.files.batch.size": "2",
}
"""Files of the archive are joined as soon as there are two."""
LOSES_ORDER = "v8_mor_bloom_event"
DIES_COMPACTING = ("v6_mor_bloom_event", "v8_mor_bloom_event")
DIES_CLEANING = ("v6_mor_bloom_event", "v6_cow_bloom_commit", "v8_cow_simple_event")


def compacts_copy(t: ServicedTable, hudi: Hudi) -> bool | None:
    """Hudi's stand-alone compaction of the same logs, in a copy, with what the table says."""
    if t.case.name != LOSES_ORDER:
        return False
    copied = t.copy()
    step = call("run_compaction", "path", op="scheduleAndExecute")
    settings = {"hoodie.metadata.enable": "false", **EVERY_WRITE}
    hudi.steps(copied, f"{t.case.name}_copy", [{**step, "settings": settings}])
    theirs = read_by(hudi, copied, {})
    columns = t.columns.names
    if not isinstance(theirs, str):
        theirs = theirs.select(columns)
    ours = t.open().scan(columns=columns).to_arrow()
    t.findings.append(Finding(f"{hudi.version}, stand-alone compaction", ours, theirs))
    return None


def services_beside_savepoint(t: ServicedTable, hudi: Hudi) -> None:
    """An upsert, Hudi's compaction and its clean; the savepoint is ours."""
    keyed_steps.hudi_services(t, hudi)
    t.ask_savepoint(hudi)


def lets_go(t: ServicedTable, hudi: Hudi) -> None:
    """Hudi deletes our savepoint."""
    assert t.saved is not None
    _call(t, hudi, "delete_savepoint", instant_time=t.saved.instant)
    assert not t.open().services.savepoints.all()


def archives(order: int) -> Does:
    """An upsert, with everything that Hudi does behind it."""

    def does(t: ServicedTable, hudi: Hudi) -> None:
        before = t.show_commits(hudi)
        more = {**(COMPACT if t.is_mor else {}), **ARCHIVE, **JOINED}
        known = set(t.archived)
        t.archive(lambda: keyed_steps.hudi_upsert(order, more)(t, hudi))
        t.model.compact()
        assert t.archived > known, "Hudi has archived nothing"
        t.ask_archive(hudi, before)

    return does


def compacts_by_plan(t: ServicedTable, hudi: Hudi) -> bool | None:
    """Our plan."""
    if not t.is_mor:
        return False
    assert t.planned is not None
    _call(t, hudi, "run_compaction", "path", op="run", timestamp=int(t.planned))
    assert t.is_completed(t.planned), "Hudi has not executed the plan"
    t.model.compact()
    return None


def plans_compaction(t: ServicedTable, hudi: Hudi) -> bool | None:
    """An upsert with a plan behind it; on some tables a process of Hudi's dies executing it."""
    if not t.is_mor:
        return False
    keyed_steps.hudi_upsert(220, PLAN_COMPACTION)(t, hudi)
    t.model.plan()
    (plan,) = t.pending("compaction")
    t.planned = plan.requested
    if t.case.name in DIES_COMPACTING:
        _die_compacting(t, hudi, plan.requested)
    return None


def _die_compacting(t: ServicedTable, hudi: Hudi, plan: str) -> None:
    """What Hudi leaves if it dies behind its first file: the file, its marker, the inflight state.

    Hudi executes the plan in a copy, from where the file comes.
    """
    copied = t.copy()
    step = call("run_compaction", "path", op="run", timestamp=int(plan))
    hudi.steps(copied, f"{t.case.name}_copy", [{**step, "settings": _settings(t, hudi)}])
    made = sorted(copied.rglob(f"*_{plan}.parquet"))[0]
    place = made.relative_to(copied)
    (t.path / place).write_bytes(made.read_bytes())
    marker = t.path / ".hoodie" / ".temp" / plan / place.parent / f"{place.name}.marker.MERGE"
    marker.parent.mkdir(parents=True)
    marker.touch()
    (folder_of(t.path) / f"{plan}.compaction.inflight").touch()


def cleans_by_plan(t: ServicedTable, hudi: Hudi) -> None:
    """Our plan."""
    assert t.planned is not None
    _call(t, hudi, "run_clean")
    assert t.is_completed(t.planned), "Hudi has not executed the plan"


def plans_clean(t: ServicedTable, hudi: Hudi) -> None:
    """A plan; on some tables a process of Hudi's dies behind the first file that it has deleted."""
    t.planned = _plan(t, hudi, "clean", CLEAN)
    assert t.planned is not None, "Hudi has nothing to clean"
    if t.case.name in DIES_CLEANING:
        (plan,) = t.pending("clean")
        plan.file.with_name(f"{plan.requested}.clean.inflight").write_bytes(plan.file.read_bytes())
        partition, names = next(iter(_doomed(t).items()))
        (t.path / partition / names[0]).unlink()


def _doomed(t: ServicedTable) -> dict[str, list[str]]:
    """The files that the pending clean is going to delete."""
    table = t.open()
    clean = table.timeline.filter_actions("clean").pending().last()
    assert clean is not None
    access, _ = table.opened(None)
    return files_of_plan(load_cleaner_plan(access.storage, table.properties, clean))


def dies(t: ServicedTable, hudi: Hudi) -> None:
    """A write of Hudi's has died before its commit, long ago, and Hudi plans to take it back."""
    rows = t.rows([*t.alive()[::3], *t.new(3)], 300)
    try:
        keyed_steps.hudi_write(t, hudi, "upsert", rows, FAILING_CHECK)
    except HudiRefusedError as refused:
        if "alidat" not in refused.trace:
            raise
    else:
        raise AssertionError("a write that was to fail has completed")
    for heartbeat in (t.path / ".hoodie" / ".heartbeat").glob("*"):
        os.utime(heartbeat, (0, 0))
    now = datetime.now(UTC)
    time = f"{now:%Y%m%d%H%M%S}{now.microsecond // 1000:03d}"
    t.planned = _plan(t, hudi, "rollback", {}, time=time)
    assert [s.requested for s in t.pending("rollback")] == [time]


def saves(t: ServicedTable, hudi: Hudi) -> None:
    """Hudi keeps the newest commit."""
    instant = t.newest_write()
    _call(t, hudi, "create_savepoint", commit_time=instant)
    t.remember(instant)


def upserts_for_nothing(t: ServicedTable, hudi: Hudi) -> None:
    """An upsert that is going to be taken back."""
    t.remember(t.newest_write())
    keyed_steps.hudi_upsert(350)(t, hudi)


def restores(t: ServicedTable, hudi: Hudi) -> None:
    """Hudi goes back to the savepoint."""
    assert t.saved is not None
    _call(t, hudi, "rollback_to_savepoint", instant_time=t.saved.instant)
    t.go_back()


def _settings(t: ServicedTable, hudi: Hudi) -> dict[str, str]:
    return t.case.hudi_options(hudi.version)


def _call(t: ServicedTable, hudi: Hudi, procedure: str, by: str = "table", **given: Any) -> None:
    """A procedure of Hudi's, with the options of the table's writer."""
    step = call(procedure, by, **given)
    hudi.steps(t.path, t.case.name, [{**step, "settings": _settings(t, hudi)}])


def _plan(
    t: ServicedTable, hudi: Hudi, service: str, more: Mapping[str, str], **given: str
) -> str | None:
    options = {**t.case.hudi_options(hudi.version), **more}
    step = {"do": "plan", "service": service, "options": options, **given}
    (done,) = hudi.steps(t.path, t.case.name, [step])
    return None if done["result"] is None else str(done["result"])
