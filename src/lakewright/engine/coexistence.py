"""Who may write a table, and by which lock: the rules of living beside other writers, as code.

A lock is writer configuration and invisible on a table. If every write on the timeline is ours, our
own default lock keeps our processes apart: Hudi's lock file on a local folder, Hudi's storage lock
where conditional puts hold. As soon as somebody else has written, the caller must name the lock
that the others use, or say that nobody else writes; otherwise the write is refused before anything
happens.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakewright.engine.write_options import WriteOptions
from lakewright.errors import ConfigError, LockRequiredError, UnsupportedTableError
from lakewright.format.properties import load_properties
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import load_timeline
from lakewright.runtime.cancel import NEVER_CANCELLED, CancelToken
from lakewright.runtime.clock import Clock, SystemClock
from lakewright.runtime.events import EventHook, ignore_events
from lakewright.runtime.process import Processes, SystemProcesses
from lakewright.runtime.random import Random, SystemRandom
from lakewright.runtime.spawn import Spawner, ThreadSpawner
from lakewright.storage.base import Storage
from lakewright.txn.access import Access, FailedWrites
from lakewright.txn.locks.file_system import FileSystemLock
from lakewright.txn.locks.in_process import InProcessLock
from lakewright.txn.locks.protocol import LockProvider
from lakewright.txn.locks.resolve import lock_from
from lakewright.txn.locks.storage_lock import StorageLock
from lakewright.txn.mark import is_alone

__all__ = ["LockChoice", "open_access", "open_watch"]

LockChoice = LockProvider | Mapping[str, str] | str | None
"""A lock, Hudi's options of one, or a short name; None where the caller names none."""


def open_access(
    storage: Storage,
    options: WriteOptions,
    *,
    lock: LockChoice = None,
    sole_writer: bool = False,
    clock: Clock | None = None,
    random: Random | None = None,
    spawner: Spawner | None = None,
    processes: Processes | None = None,
    cancel: CancelToken = NEVER_CANCELLED,
    on_event: EventHook = ignore_events,
) -> Access:
    """The means to change the table in `storage`.

    Raises `UnsupportedTableError` for a table that is not written here, and `LockRequiredError`
    where others write and the caller named no lock.
    """
    clock, random = clock or SystemClock(), random or SystemRandom()
    spawner, processes = spawner or ThreadSpawner(), processes or SystemProcesses()
    properties = load_properties(storage, clock=clock)
    _refuse_unwritable(properties, storage)
    named = lock_from(
        lock if lock is not None else _lock_options(options),
        storage,
        clock=clock,
        random=random,
        spawner=spawner,
        processes=processes,
        on_event=on_event,
    )
    alone = is_alone(storage, properties, load_timeline(storage, properties))
    if named is None and not alone and not sole_writer:
        raise _lock_required(storage)
    provider = named or _default_lock(storage, clock, random, spawner, processes, on_event)
    policy = options.failed_writes_policy
    if named is not None and options.failed_writes is None:
        policy = FailedWrites.LAZY
    return Access(
        storage=storage,
        lock=provider,
        alone=alone and named is None,
        failed_writes=policy,
        heartbeat=options.heartbeat,
        rollback_delay_ms=options.rollback_delay_mins * 60_000,
        lock_wait_s=options.lock_patience_s,
        clock=clock,
        random=random,
        spawner=spawner,
        processes=processes,
        cancel=cancel,
        on_event=on_event,
    )


def open_watch(
    storage: Storage,
    options: WriteOptions,
    *,
    lock: LockChoice = None,
    clock: Clock | None = None,
    on_event: EventHook = ignore_events,
) -> Access:
    """The means to look at the table in `storage`, whoever writes it and whatever its version.

    Whoever gets it changes nothing by it: its lock is only there to be looked at.
    """
    clock, random = clock or SystemClock(), SystemRandom()
    spawner, processes = ThreadSpawner(), SystemProcesses()
    named = lock_from(
        lock if lock is not None else _lock_options(options),
        storage,
        clock=clock,
        random=random,
        spawner=spawner,
        processes=processes,
        on_event=on_event,
    )
    usual = _usual_lock(storage, clock, random, spawner, processes, on_event)
    provider = named or usual or InProcessLock(storage.uri, clock=clock)
    return Access(
        storage=storage,
        lock=provider,
        heartbeat=options.heartbeat,
        rollback_delay_ms=options.rollback_delay_mins * 60_000,
        clock=clock,
        random=random,
        spawner=spawner,
        processes=processes,
        on_event=on_event,
    )


def _lock_options(options: WriteOptions) -> Mapping[str, str] | str | None:
    if options.lock_provider is None:
        return None
    return {**options.lock_settings, "hoodie.write.lock.provider": options.lock_provider}


def _refuse_unwritable(properties: TableProperties, storage: Storage) -> None:
    if properties.version.writable:
        return
    raise UnsupportedTableError(
        f"Tables of version {properties.version} are read here, but not written.",
        hint="Write it with Hudi, or downgrade it to version 8 or 6 with Hudi's downgrade_table.",
        context={"table": storage.uri, "version": properties.version.number},
    )


def _lock_required(storage: Storage) -> LockRequiredError:
    return LockRequiredError(
        "Somebody else writes this table, and no lock was named that keeps the writers apart.",
        hint="Pass lock= with the lock that the other writers use (their hoodie.write.lock.* "
        "options, or 'file', 'storage', 'zookeeper://…', 'dynamodb://…'), or sole_writer=True if "
        "nobody else writes any more.",
        context={"table": storage.uri},
    )


def _default_lock(
    storage: Storage,
    clock: Clock,
    random: Random,
    spawner: Spawner,
    processes: Processes,
    on_event: EventHook,
) -> LockProvider:
    usual = _usual_lock(storage, clock, random, spawner, processes, on_event)
    if usual is not None:
        return usual
    raise ConfigError(
        "This storage cannot hold a lock.",
        hint="Pass lock= with a database, ZooKeeper or DynamoDB lock.",
        context={"table": storage.uri},
    )


def _usual_lock(
    storage: Storage,
    clock: Clock,
    random: Random,
    spawner: Spawner,
    processes: Processes,
    on_event: EventHook,
) -> LockProvider | None:
    """The lock that the storage can hold itself; None if it can hold none."""
    if storage.guarantees.real_directories:
        return FileSystemLock(
            storage,
            clock=clock,
            random=random,
            spawner=spawner,
            processes=processes,
            on_event=on_event,
        )
    if storage.guarantees.atomic_replace:
        return StorageLock(storage, clock=clock, random=random, spawner=spawner)
    return None
