"""What to say of a table as a whole: services that are overdue, what is in their way, locks,
leftovers, the metadata table. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from lakewright.format.instant_times import time_ms
from lakewright.metadata.file_groups import SECONDARY_PREFIX
from lakewright.services.archive_plan import Limit, LimitKind
from lakewright.services.health import Finding, Severity, span
from lakewright.services.health_commands import Commands
from lakewright.services.health_facts import TableFacts
from lakewright.txn.metadata_beginnings import INDEXING
from lakewright.txn.metadata_gate import MAINTAINED
from lakewright.txn.plan_kinds import COMPACTION

__all__ = ["upkeep_findings"]

NOTE, ACTION, DAMAGE = Severity.NOTE, Severity.ACTION, Severity.DAMAGE
DROPPING = "hoodie.metadata.enable=false"


def upkeep_findings(facts: TableFacts) -> Iterator[Finding]:
    """What is so of the table as a whole."""
    commands = Commands(facts.uri)
    yield from _compaction(facts, commands)
    yield from _clean(facts, commands)
    yield from _archive(facts, commands)
    yield from _savepoints(facts, commands)
    yield from _lock(facts)
    yield from _left_over(facts, commands)
    yield from _metadata(facts, commands)
    for instant in facts.timeline.duplicates:
        yield Finding(
            DAMAGE,
            "timeline.completed_twice",
            "Two processes completed it. Find out which writers do not share a lock, and keep the "
            "completed file whose data files are there.",
            instant.requested_time,
            instant.action,
        )
    for what, why in facts.not_known:
        yield Finding(DAMAGE, "health.not_known", f"It could not be found out {what}: {why}")


def _compaction(facts: TableFacts, commands: Commands) -> Iterator[Finding]:
    found = facts.compaction
    waiting = any(pending.kind is COMPACTION for pending in facts.pending)
    if found is None or not found.due or waiting:
        return
    options = found.options
    yield Finding(
        ACTION,
        "compaction.overdue",
        f"{found.writes} writes since the last compaction ({options.trigger.value}, "
        f"{options.commits} commits, {span(options.seconds * 1000)}), and none is planned.",
        since_ms=found.since_ms,
        command=commands.compact(),
    )


def _clean(facts: TableFacts, commands: Commands) -> Iterator[Finding]:
    if facts.clean_files:
        yield Finding(
            ACTION,
            "clean.overdue",
            f"{facts.clean_files} files are older than what is to be retained.",
            command=commands.clean(),
        )


# ---- archiving ---------------------------------------------------------------------------------


def _archive(facts: TableFacts, commands: Commands) -> Iterator[Finding]:
    plan = facts.archive
    if plan is None or not plan.due:
        return
    grown = f"{plan.commits} commits are on the active timeline; more than {plan.keep_max} are many"
    if plan.instants:
        why = f"{grown}, and {len(plan.instants)} instants could be archived."
        yield Finding(ACTION, "archive.overdue", why, command=commands.archive())
    limit = plan.blocked_by
    if limit is not None:
        yield Finding(
            ACTION,
            "archive.blocked",
            f"{grown}. What keeps them: {limit.kind.value}.",
            limit.cause,
            since_ms=None if limit.cause is None else time_ms(limit.cause, zone=facts.zone),
            command=_resolving(limit, commands),
        )


def _resolving(limit: Limit, commands: Commands) -> str | None:
    """What takes the reason out of the way; None if that is told by a finding of its own."""
    if limit.kind is LimitKind.SAVEPOINT and limit.cause is not None:
        return commands.delete_savepoint(limit.cause)
    if limit.kind in (LimitKind.REPLACED_FILES, LimitKind.LAST_CLEAN):
        return commands.clean()
    if limit.kind is LimitKind.COMPACTION_TRIGGER:
        return commands.compact()
    return None


def _savepoints(facts: TableFacts, commands: Commands) -> Iterator[Finding]:
    for kept in facts.savepoints:
        said = f" ({kept.comment})" if kept.comment else ""
        yield Finding(
            NOTE,
            "savepoint.holds",
            f"{kept.files} files stay for it{said}; cleaning leaves them alone, and the timeline "
            "is not archived beyond it.",
            kept.instant,
            "savepoint",
            kept.by or None,
            kept.created_ms,
            commands.delete_savepoint(kept.instant),
        )


# ---- locks and traces --------------------------------------------------------------------------


def _lock(facts: TableFacts) -> Iterator[Finding]:
    if not facts.alone:
        why = (
            "Others than lakewright write the table: commands that change it need the lock that "
            "they use (--lock)."
        )
        yield Finding(NOTE, "lock.needed", why)
    holder = facts.lock
    if holder is None:
        return
    held_ms = 0 if holder.since_ms is None else facts.now_ms - holder.since_ms
    long = held_ms > facts.tolerance_ms
    why = f"The {holder.place} is held. "
    why += f"If its holder is dead: {holder.if_dead}" if long else "Locks are held for moments."
    yield Finding(
        ACTION if long else NOTE,
        "lock.held_long" if long else "lock.held",
        why,
        owner=holder.who,
        since_ms=holder.since_ms,
    )


def _left_over(facts: TableFacts, commands: Commands) -> Iterator[Finding]:
    if facts.left_over:
        yield Finding(
            NOTE,
            "traces.left",
            f"Writes that are over ({len(facts.left_over)}) have left markers, heartbeats or "
            "fences; the next write or clean of ours sweeps them.",
            facts.left_over[0],
            command=commands.clean(),
        )


# ---- the metadata table ------------------------------------------------------------------------


def _metadata(facts: TableFacts, commands: Commands) -> Iterator[Finding]:
    found = facts.metadata
    names = ", ".join((*found.built, *found.building))
    if found.building and not facts.timeline.filter_actions(INDEXING).pending():
        yield Finding(
            ACTION,
            "metadata_table.building",
            f"Somebody has not finished building {', '.join(found.building)} of the metadata "
            "table; everybody writes to it and nobody reads it.",
            command=commands.build(*found.building),
        )
    if found.lost and not found.built:
        yield Finding(
            ACTION,
            "metadata_table.lost",
            f"A rollback or a restore had to drop the metadata table ({', '.join(found.lost)}); "
            "the next write of ours builds it anew.",
            command=commands.build(*found.lost),
        )
    if found.untrusted is not None:
        yield Finding(
            ACTION,
            "metadata_table.untrusted",
            f"{found.untrusted} Readers of ours go without it; Hudi's fail, or do not notice.",
            command=commands.build(),
        )
    elif found.built:
        foreign = sorted(
            i for i in set(found.built) - MAINTAINED if not i.startswith(SECONDARY_PREFIX)
        )
        kept = "Writes and services of ours keep it right."
        if foreign:
            kept = (
                f"Writes and services of ours do not keep {', '.join(foreign)} right, and refuse "
                f"such a table unless they may drop it ({DROPPING})."
            )
        told = f"The table has a metadata table ({names}), up to date. {kept}"
        yield Finding(NOTE, "metadata_table.present", told)
    elif found.folder and not found.building:
        why = "The folder of a metadata table is there that the table does not claim to have."
        yield Finding(NOTE, "metadata_table.left", why)
