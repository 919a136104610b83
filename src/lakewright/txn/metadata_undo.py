"""Taking a commit of the metadata table back, whole, while the data table's lock is held.

As in any table: a rollback on its timeline with a plan, then the completed file goes, then the
files of the commit (version 6: a command block behind its blocks), then its pending files, then the
rollback is completed. A process that dies leaves a pending rollback; whoever changes the metadata
table next finishes it first, with the same plan.
"""

from __future__ import annotations

from lakewright.errors import MetadataTableError
from lakewright.format.instant import Instant, State
from lakewright.format.records import InstantInfo, load_commit_metadata
from lakewright.runtime.events import Event
from lakewright.txn.locks.protocol import Lease
from lakewright.txn.markers import delete_markers
from lakewright.txn.metadata_store import MetadataStore
from lakewright.txn.pending_rollbacks import ROLLBACK, PendingRollback, pending_rollbacks
from lakewright.txn.rollback_plan import plan_rollback
from lakewright.txn.undoing import undo
from lakewright.txn.unpublish import markers_of

__all__ = ["DELTA_COMMIT", "cleared", "finished", "taken_back"]

DELTA_COMMIT = "deltacommit"
"""The action of every commit of the metadata table, whatever the data table's action is."""


def cleared(store: MetadataStore, lease: Lease, instant: str) -> MetadataStore:
    """The metadata table without anything half-done, and without a commit at `instant`.

    A commit at the same time is that of an attempt before this one, which did not get further.
    """
    store = finished(store, lease)
    for commit in _in_the_way(store, instant):
        store = taken_back(store, lease, commit, store.rollback_time())
    return store


def _in_the_way(store: MetadataStore, instant: str) -> list[Instant]:
    commits = store.timeline.filter_actions(DELTA_COMMIT)
    return [i for i in reversed(commits.instants) if not i.completed or i.requested_time == instant]


def finished(store: MetadataStore, lease: Lease) -> MetadataStore:
    """Finish rollbacks that were not finished."""
    if store.timeline.filter_actions("restore").pending().first() is not None:
        raise MetadataTableError(
            "The metadata table is in the middle of a restore.",
            hint="Let the restore of the table finish, or drop the metadata table.",
            context={"table": store.storage.uri},
        )
    known = pending_rollbacks(store.access, store.properties, store.timeline)
    planned = {rollback.instant for rollback in known.values()}
    for rollback in known.values():
        store = _executed(store, lease, rollback)
    for instant in store.timeline.filter_actions(ROLLBACK).pending():
        if instant.requested_time not in planned:  # its process died before the plan was whole
            lease.check()
            store.files.remove(instant.requested_time, ROLLBACK)
    return store.looked_again() if planned else store


def taken_back(store: MetadataStore, lease: Lease, commit: Instant, time: str) -> MetadataStore:
    """Roll a commit back by a rollback at `time`; the metadata table without it."""
    markers = None
    if commit.completed:
        content = load_commit_metadata(store.storage, store.properties, commit)
        markers = markers_of(store.properties, commit, content)
    plan = plan_rollback(store.storage, store.properties, commit, markers=markers)
    lease.check()
    store.files.request(time, ROLLBACK, plan.write(store.properties.version))
    return _executed(store.looked_again(), lease, PendingRollback(time, plan))


def _executed(store: MetadataStore, lease: Lease, rollback: PendingRollback) -> MetadataStore:
    found = store.timeline.get(rollback.instant, ROLLBACK)
    if found is not None and found.state is State.REQUESTED:
        store.files.start(rollback.instant, ROLLBACK)
    target: InstantInfo = rollback.target
    commit = store.timeline.get(target.commit_time, target.action)
    if commit is not None and commit.completed:
        content = load_commit_metadata(store.storage, store.properties, commit)
        inflight = content.write(store.properties.version)
        store.files.unpublish(commit, DELTA_COMMIT, inflight, lease.check)
    metadata = undo(store.access, store.properties, rollback, lease)
    lease.check()
    store.files.remove(target.commit_time, target.action)
    completed = store.next_time(after=rollback.instant)
    lease.check()
    data = metadata.write(store.properties.version)
    store.files.complete(rollback.instant, ROLLBACK, data, completed)
    delete_markers(store.storage, rollback.instant)
    store.access.on_event(Event("metadata_table.rolled_back", 1, instant=target.commit_time))
    return store.looked_again()
