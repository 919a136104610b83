"""What lakewright does to the serviced tables.

Each function is a step: it services the table, tells the model, and asks what only it can ask.
"""

from __future__ import annotations

from interop.hudi import Hudi
from interop.instants import completed_writes
from interop.keyed_steps import upsert
from interop.serviced_table import ServicedTable
from lakewright.services.clean import CleanOptions, CleanResult, schedule_clean
from lakewright.services.restore import run_restore
from lakewright.services.rollback import roll_back_instant

EVERY_WRITE = {"hoodie.compact.inline.max.delta.commits": "1"}
KEEP_ONE = {"hoodie.clean.commits.retained": "1"}
FEW = {
    **EVERY_WRITE,
    **KEEP_ONE,
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.timeline.compaction.batch.size": "2",
}


def upsert_evolved(t: ServicedTable, _: Hudi) -> None:
    """Rows with a new column and two wider ones."""
    t.columns = t.grown_columns
    t.upsert(t.rows([*t.alive()[::2], *t.new(4)], 60))


def compaction(t: ServicedTable, _: Hudi) -> bool | None:
    """Everything that is due: one plan, made and executed."""
    if not t.is_mor:
        return False
    done = t.open().services.compaction.run(EVERY_WRITE)
    assert len(done) == 1, done
    assert done[0].slices, done
    t.model.compact()
    return None


def savepoint(t: ServicedTable, _: Hudi) -> None:
    """The newest commit is kept."""
    t.remember(t.open().services.savepoints.create().instant)


def clean(t: ServicedTable, _: Hudi) -> None:
    """Everything that only older states need."""
    cleaned = _clean(t)
    assert cleaned.files_deleted, cleaned


def let_go(t: ServicedTable, _: Hudi) -> None:
    """The savepoint is deleted."""
    assert t.saved is not None
    t.open().services.savepoints.delete(t.saved.instant)


def clean_beside_savepoint(t: ServicedTable, hudi: Hudi) -> None:
    """Everything but what the savepoint names."""
    clean(t, hudi)
    t.ask_savepoint(hudi)


def archive(t: ServicedTable, hudi: Hudi) -> None:
    """All but the newest commits leave the timeline."""
    before = t.show_commits(hudi)
    t.archive(lambda: t.open().services.archive.run(FEW))
    t.ask_archive(hudi, before)


def archive_and_ask(t: ServicedTable, hudi: Hudi) -> None:
    """All but the newest commits leave the timeline; changes over them can still be asked for."""
    archive(t, hudi)
    t.ask_changes(hudi)


def plan_compaction(t: ServicedTable, _: Hudi) -> bool | None:
    """A plan, and nothing more."""
    if not t.is_mor:
        return False
    t.planned = t.open().services.compaction.schedule(EVERY_WRITE)
    assert t.planned is not None
    t.model.plan()
    return None


def compact_by_plan(t: ServicedTable, _: Hudi) -> bool | None:
    """The plan of Hudi, from the beginning or where a process of Hudi's died."""
    if not t.is_mor:
        return False
    done = t.open().services.compaction.run({"hoodie.compact.inline.max.delta.commits": "1000"})
    assert [d.instant for d in done] == [t.planned], (done, t.planned)
    t.model.compact()
    return None


def plan_clean(t: ServicedTable, _: Hudi) -> None:
    """A plan, and nothing more."""
    access, _options = t.open().opened(KEEP_ONE)
    t.planned = schedule_clean(access, CleanOptions.of(KEEP_ONE))
    assert t.planned is not None


def clean_by_plan(t: ServicedTable, _: Hudi) -> None:
    """The plan of Hudi, from the beginning or where a process of Hudi's died."""
    done = [instant for instant, _ in _clean(t).executed]
    assert t.planned in done, (done, t.planned)
    assert t.is_completed(t.planned or "")


def clean_after_death(t: ServicedTable, _: Hudi) -> None:
    """The write of a dead process of Hudi's is taken back, by the plan that Hudi has made."""
    dead = {s.requested for s in t.pending("deltacommit" if t.is_mor else "commit")}
    assert len(dead) == 1, dead
    done = _clean(t)
    assert set(done.rolled_back) == dead, (done, dead)
    assert not t.pending("rollback")
    assert t.is_completed(t.planned or ""), t.planned


def services_beside_savepoint(t: ServicedTable, hudi: Hudi) -> None:
    """Compaction, clean and archiving; none of them touches the savepoint."""
    assert t.saved is not None
    if t.is_mor:
        compaction(t, hudi)
    _clean(t)
    archive(t, hudi)
    assert t.saved.instant in {s.requested for s in completed_writes(t.path)}
    t.ask_savepoint(hudi)


def roll_back(t: ServicedTable, hudi: Hudi) -> None:
    """An upsert of ours is taken back, and then the one of Hudi before it."""
    theirs = t.newest_write()
    upsert(355)(t, hudi)
    ours = t.newest_write()
    assert ours > theirs
    access, _ = t.open().opened(None)
    for instant in (ours, theirs):
        roll_back_instant(access, instant)
    t.go_back()


def restore(t: ServicedTable, _: Hudi) -> None:
    """Back to the savepoint, over writes and services of both sides."""
    assert t.saved is not None
    access, _options = t.open().opened(None)
    done = run_restore(access, t.saved.instant)
    assert done.undone, done
    t.go_back()


def all_services(t: ServicedTable, hudi: Hudi) -> None:
    """Compaction, clean and archiving."""
    if t.is_mor:
        compaction(t, hudi)
    _clean(t)
    archive(t, hudi)


def _clean(t: ServicedTable) -> CleanResult:
    return t.open().services.clean.run(KEEP_ONE)
