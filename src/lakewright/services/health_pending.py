"""What to say of each instant that is not completed: alive, dead, blocked or waiting. Pure.

The rules are those by which writes, cleans and executions act (`txn/recovery`, `txn/execution`), so
what is called dead here is what they would take over, and what is said to wait is what they leave
alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from lakewright.format.instant import COMMIT_ACTIONS, State
from lakewright.services.health import Finding, Severity, span
from lakewright.services.health_commands import Commands
from lakewright.services.health_facts import Life, Pending, TableFacts
from lakewright.txn.metadata_beginnings import INDEXING
from lakewright.txn.plan_kinds import COMPACTION

__all__ = ["pending_findings"]

NOTE, ACTION, DAMAGE = Severity.NOTE, Severity.ACTION, Severity.DAMAGE
_SILENT_HUDI: Final = (
    "Hudi in single-writer mode, and its services before 1.2, give no sign of life: make sure that "
    "none of them is at work"
)


def pending_findings(facts: TableFacts) -> Iterator[Finding]:
    """One finding or more for every pending instant."""
    commands = Commands(facts.uri)
    rollbacks = {p.target.commit_time: p for p in facts.pending if p.target is not None}
    for pending in facts.pending:
        for finding in _judged(facts, pending, commands, rollbacks):
            yield replace(
                finding,
                instant=pending.instant.requested_time,
                action=pending.instant.action,
                owner=_owner(facts, pending),
                since_ms=pending.since_ms,
            )


def _owner(facts: TableFacts, pending: Pending) -> str | None:
    signs = pending.signs
    if signs.owner is not None:
        return f"{signs.owner}{', which is dead' if signs.known_dead else ''}"
    return "a Hudi process" if facts.life(pending) is Life.ALIVE else None


def _judged(
    facts: TableFacts, pending: Pending, commands: Commands, rollbacks: dict[str, Pending]
) -> Iterator[Finding]:
    action = pending.instant.action
    if pending.unreadable is not None:
        yield _unreadable(pending)
    elif pending.kind is not None:
        yield from _plan(facts, pending, commands)
    elif action == "rollback":
        yield _rollback(facts, pending, commands)
    elif action == "clean":
        yield _clean(facts, pending, commands)
    elif action in COMMIT_ACTIONS:
        yield _write(facts, pending, commands, rollbacks.get(pending.instant.requested_time))
    else:
        yield _other(facts, pending, commands)


def _subject(pending: Pending) -> str:
    """What codes begin with."""
    if pending.kind is not None:
        return "plan"
    action = pending.instant.action
    return "write" if action in COMMIT_ACTIONS else action


def _unreadable(pending: Pending) -> Finding:
    return Finding(
        DAMAGE,
        f"{_subject(pending)}.unreadable",
        f"Its plan cannot be read: {pending.unreadable} Nothing is archived, and a plan is neither "
        "executed nor cleaned around, until the file is whole again or gone.",
    )


def _silence(facts: TableFacts, pending: Pending) -> str:
    """Why a process counts as dead."""
    signs = pending.signs
    if signs.known_dead:
        return "Its process does not run any more."
    if signs.beaten_ms is None:
        return "Its process has given it up."
    return (
        f"Its last heartbeat is {span(facts.now_ms - signs.beaten_ms)} old; "
        f"{span(facts.tolerance_ms)} are tolerated."
    )


# ---- writes ------------------------------------------------------------------------------------


def _write(
    facts: TableFacts, pending: Pending, commands: Commands, rollback: Pending | None
) -> Finding:
    life = facts.life(pending)
    command = commands.roll_back(pending.instant.requested_time)
    if life is Life.ALIVE:
        return Finding(NOTE, "write.alive", "It is being written.")
    if rollback is not None:
        why = f"It is being rolled back by {rollback.instant.requested_time}."
        return Finding(NOTE, "write.rolled_back", why)
    if life is Life.DEAD:
        why = f"{_silence(facts, pending)} The next write or clean of ours rolls it back."
        return Finding(ACTION, "write.dead", why, command=command)
    young = facts.age_ms(pending) <= facts.tolerance_ms
    why = (
        f"Nothing tells who writes it or whether it is alive. {_SILENT_HUDI}, then let it be "
        "rolled back; until then cleaning and archiving stop before it."
    )
    return Finding(
        NOTE if young else ACTION, "write.unknown", why, command=None if young else command
    )


# ---- plans -------------------------------------------------------------------------------------


def _plan(facts: TableFacts, pending: Pending, commands: Commands) -> Iterator[Finding]:
    assert pending.kind is not None
    if pending.missing:
        yield Finding(
            DAMAGE,
            "plan.files_missing",
            f"{len(pending.missing)} files of the plan are not there, such as "
            f"{pending.missing[0]}. Something deleted them that did not know of the plan; look at "
            "the cleans and rollbacks after it before taking the plan away.",
            command=commands.unschedule(pending.instant.requested_time),
        )
    if facts.life(pending) is Life.ALIVE:
        yield Finding(NOTE, "plan.alive", f"The {pending.kind.service} is being executed.")
    elif pending.removable:
        yield _removable_plan(facts, pending, commands)
    else:
        yield _lasting_plan(facts, pending, commands)


def _lasting_plan(facts: TableFacts, pending: Pending, commands: Commands) -> Finding:
    assert pending.kind is not None
    service, age_ms = pending.kind.service, facts.age_ms(pending)
    ours = pending.kind is COMPACTION
    time = pending.instant.requested_time
    command = commands.compact(time) if ours else commands.unschedule(time)
    by_hudi = "" if ours else " Let Hudi execute it; if it never will, the plan can be taken away."
    if pending.instant.state is State.REQUESTED:
        waits = f"The {service} is planned and waits to be executed; it never expires.{by_hudi}"
        late = age_ms >= facts.rollback_delay_ms
        why = f"{waits} Nothing after it is archived." if late else waits
        return Finding(
            ACTION if late else NOTE,
            "plan.overdue" if late else "plan.requested",
            why,
            command=command,
        )
    if facts.life(pending) is Life.DEAD:
        why = (
            f"The {service} was begun and nobody works on it. {_silence(facts, pending)} Executing "
            f"it rolls back what was left and does it again.{by_hudi}"
        )
        return Finding(ACTION, "plan.dead", why, command=command)
    why = (
        f"The {service} was begun, and nothing tells whether somebody works on it. {_SILENT_HUDI}, "
        f"then execute it again.{by_hudi}"
    )
    young = age_ms <= facts.tolerance_ms
    return Finding(
        NOTE if young else ACTION, "plan.unknown", why, command=None if young else command
    )


def _removable_plan(facts: TableFacts, pending: Pending, commands: Commands) -> Finding:
    assert pending.kind is not None
    service = pending.kind.service
    left_ms = facts.rollback_delay_ms - facts.age_ms(pending)
    begun = pending.instant.state is not State.REQUESTED
    state = (
        f"The {service} was begun and is never executed again."
        if begun
        else f"The {service} is planned and waits to be executed."
    )
    if left_ms > 0:
        why = f"{state} Cleaning removes it in {span(left_ms)} if nobody works on it then."
        return Finding(NOTE, "plan.abandoned" if begun else "plan.requested", why)
    why = (
        f"{state} It is older than table_service_rollback_delay "
        f"({span(facts.rollback_delay_ms)}), and cleaning removes it."
    )
    return Finding(ACTION, "plan.expired", why, command=commands.clean())


# ---- rollbacks, cleans and others --------------------------------------------------------------


def _rollback(facts: TableFacts, pending: Pending, commands: Commands) -> Finding:
    assert pending.target is not None
    time, action = pending.target.commit_time, pending.target.action
    if facts.life(pending) is Life.ALIVE:
        return Finding(NOTE, "rollback.alive", f"The {action} {time} is being rolled back.")
    target = facts.timeline.get(time, action)
    if target is not None and target.completed:
        return Finding(
            DAMAGE,
            "rollback.of_committed",
            f"It would take back the {action} {time}, which is committed. Nobody executes it; "
            "two processes without a common lock made it so.",
        )
    plan = next((p for p in facts.pending if p.instant.requested_time == time and p.kind), None)
    if plan is not None and not plan.removable:
        assert plan.kind is not None
        ours = plan.kind is COMPACTION
        return Finding(
            ACTION,
            "rollback.of_plan",
            f"It undoes an attempt at the {plan.kind.service} {time} and belongs to whoever "
            "executes that plan; cleaning leaves it alone.",
            command=commands.compact(time) if ours else commands.unschedule(time),
        )
    return Finding(
        ACTION,
        "rollback.pending",
        f"The rollback of the {action} {time} was not finished; the next write or clean of ours "
        "executes it.",
        command=commands.clean(),
    )


def _clean(facts: TableFacts, pending: Pending, commands: Commands) -> Finding:
    if facts.life(pending) is Life.ALIVE:
        return Finding(NOTE, "clean.alive", "It is being executed.")
    why = "It was planned and not finished; the next clean finishes it, also one of Hudi's."
    return Finding(ACTION, "clean.pending", why, command=commands.clean())


def _other(facts: TableFacts, pending: Pending, commands: Commands) -> Finding:
    action, time = pending.instant.action, pending.instant.requested_time
    alive = facts.life(pending) is Life.ALIVE
    if action == "restore":
        why = "Nothing can be written or cleaned before it is finished."
        if alive:
            return Finding(NOTE, "restore.alive", why)
        return Finding(ACTION, "restore.pending", why, command=commands.finish_restore())
    if action == "savepoint":
        why = "It was begun and not finished, so it keeps nothing yet; making it again finishes it."
        return Finding(ACTION, "savepoint.pending", why, command=commands.create_savepoint(time))
    if action == INDEXING and facts.life(pending) is not Life.UNKNOWN:
        if alive:
            return Finding(NOTE, "indexing.alive", "Indexes are being built; writers go on.")
        why = (
            f"Indexes were to be built, and nobody does. {_silence(facts, pending)} Until they are "
            "built again everybody writes to them and nobody reads them; nothing after it is "
            "archived."
        )
        return Finding(
            ACTION, "indexing.dead", why, command=commands.build(*facts.metadata.building)
        )
    young = facts.age_ms(pending) <= facts.tolerance_ms
    why = f"An {action} of Hudi's is not completed; Hudi executes it. Nothing after it is archived."
    return Finding(NOTE if alive or young else ACTION, f"{action}.pending", why)
