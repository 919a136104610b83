"""What a rollback of a pending write has to undo, decided before anything is deleted.

By markers where the write left a marker folder; by listing every partition where it did not, so
that lost markers never leave files behind. A write that is only requested has no files. Version 6
undoes blocks in log files of older slices by command blocks; everything else is deleted. Logs that
carry the time of a compaction are not touched, because version 6 names logs of later writes so;
only a restore, which takes these writes back as well, asks for whole slices.

Plans are read by Hudi too, which may have to finish a rollback of ours, so paths are full ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lakewright.errors import CorruptFileError, NotFoundError
from lakewright.format.file_names import BaseFileName, LogFileName, parse_data_file
from lakewright.format.instant import Instant, State
from lakewright.format.partitions import ListedFile, list_files, list_partitions, list_table
from lakewright.format.records import (
    CommitMetadata,
    InstantInfo,
    RollbackPlan,
    RollbackRequest,
    load_commit_metadata,
)
from lakewright.format.table_properties import TableProperties
from lakewright.format.version import TableVersion
from lakewright.storage.base import Storage
from lakewright.txn.markers import Marker, MarkerType, read_markers

__all__ = ["COMPACTION", "files_of_instant", "full_path", "plan_rollback", "touched_partitions"]

COMPACTION = "compaction"


def plan_rollback(
    storage: Storage,
    properties: TableProperties,
    target: Instant,
    *,
    markers: Sequence[Marker] | None = None,
    whole_slices: bool = False,
) -> RollbackPlan:
    """The plan that undoes a pending write.

    `markers` are known to name all its files; with `whole_slices` a compaction takes the logs
    behind it along.
    """
    if whole_slices and target.action == COMPACTION:
        requests = _by_listing_slices(storage, target.requested_time)
    elif markers is not None:
        requests = _by_markers(storage, properties.version, target.requested_time, markers)
    else:
        requests = _requests(storage, properties, target)
    return RollbackPlan(
        instant_to_rollback=InstantInfo(commit_time=target.requested_time, action=target.action),
        rollback_requests=[*requests],
    )


def _requests(
    storage: Storage, properties: TableProperties, target: Instant
) -> Iterator[RollbackRequest]:
    if target.state is State.REQUESTED:
        return
    markers = read_markers(storage, target.requested_time)
    if markers is not None:
        yield from _by_markers(storage, properties.version, target.requested_time, markers)
        return
    writes = target.action != COMPACTION
    profile = _profile(storage, properties, target) if writes else CommitMetadata()
    for partition in list_partitions(storage):
        files = list_files(storage, partition)
        yield from _by_listing(storage, properties.version, target, partition, files, profile)


# ---- by markers --------------------------------------------------------------------------------


def _by_markers(
    storage: Storage, version: TableVersion, instant: str, markers: Sequence[Marker]
) -> Iterator[RollbackRequest]:
    blocks: dict[tuple[str, str, str], dict[str, int]] = {}
    for marker in markers:
        name = parse_data_file(marker.file_name)
        if name is None:
            raise CorruptFileError(
                f"The marker {marker.text} is not of a data file.",
                hint="Look into the marker folder of the instant before rolling it back.",
                context={"instant": instant, "marker": marker.text},
            )
        if isinstance(name, LogFileName) and _holds_other_blocks(name, marker, instant, version):
            size = _size(storage, marker.data_path)
            if size is not None:
                group = blocks.setdefault((marker.partition, name.file_id, name.instant), {})
                group[full_path(storage, marker.data_path)] = max(size, 1)
            continue
        yield RollbackRequest(
            partition_path=marker.partition,
            file_id=name.file_id,
            latest_base_instant=instant,
            files_to_be_deleted=[full_path(storage, marker.data_path)],
        )
    for (partition, file_id, base_instant), files in blocks.items():
        yield _command_blocks(partition, file_id, base_instant, files)


def _holds_other_blocks(
    name: LogFileName, marker: Marker, instant: str, version: TableVersion
) -> bool:
    """Whether a log file belongs to an older slice, and so may hold blocks of other writes."""
    appended = marker.type is MarkerType.APPEND and name.instant != instant
    return version.rollback_by_log_block and appended


def _size(storage: Storage, path: str) -> int | None:
    try:
        return storage.stat(path).size
    except NotFoundError:
        return None


# ---- by listing --------------------------------------------------------------------------------


def _by_listing(
    storage: Storage,
    version: TableVersion,
    target: Instant,
    partition: str,
    files: Sequence[ListedFile],
    profile: CommitMetadata,
) -> Iterator[RollbackRequest]:
    instant = target.requested_time
    names = files_of_instant(files, instant, logs=target.action != COMPACTION)
    yield from _deletions(storage, instant, partition, names)
    if version.rollback_by_log_block and target.action == "deltacommit":
        yield from _appended(storage, instant, partition, files, profile)


def _by_listing_slices(storage: Storage, instant: str) -> Iterator[RollbackRequest]:
    """Every file that carries an instant, logs included."""
    for partition, files in list_table(storage).items():
        yield from _deletions(storage, instant, partition, files_of_instant(files, instant))


def _deletions(
    storage: Storage, instant: str, partition: str, names: Sequence[str]
) -> Iterator[RollbackRequest]:
    for name in names:
        yield RollbackRequest(
            partition_path=partition,
            file_id=_file_id(name),
            latest_base_instant=instant,
            files_to_be_deleted=[full_path(storage, _joined(partition, name))],
        )


def _appended(
    storage: Storage,
    instant: str,
    partition: str,
    files: Sequence[ListedFile],
    profile: CommitMetadata,
) -> Iterator[RollbackRequest]:
    """Groups that the inflight profile says were updated: a block of the write may be in a log."""
    logs: dict[tuple[str, str], dict[str, int]] = {}
    for file in files:
        name = parse_data_file(file.name)
        if isinstance(name, LogFileName) and name.instant < instant:
            group = logs.setdefault((name.file_id, name.instant), {})
            group[full_path(storage, _joined(partition, file.name))] = max(file.size, 1)
    updated = {
        stat.file_id
        for stat in profile.partition_to_write_stats.get(partition, ())
        if stat.file_id and stat.prev_commit not in (None, "null")
    }
    newest: dict[str, str] = {}
    for file_id, base_instant in logs:
        if file_id in updated:
            newest[file_id] = max(newest.get(file_id, ""), base_instant)
    for file_id, base_instant in newest.items():
        yield _command_blocks(partition, file_id, base_instant, logs[file_id, base_instant])


def _profile(storage: Storage, properties: TableProperties, target: Instant) -> CommitMetadata:
    if target.state is not State.INFLIGHT:
        return CommitMetadata()
    return load_commit_metadata(storage, properties, target)


def files_of_instant(files: Sequence[ListedFile], instant: str, *, logs: bool = True) -> list[str]:
    """Names of the data files that carry an instant: base files, and `logs`."""
    kinds = (BaseFileName, LogFileName) if logs else (BaseFileName,)
    parsed = ((file.name, parse_data_file(file.name)) for file in files)
    return [text for text, name in parsed if isinstance(name, kinds) and name.instant == instant]


# ---- parts of both -----------------------------------------------------------------------------


def _command_blocks(
    partition: str, file_id: str, base_instant: str, files: Mapping[str, int]
) -> RollbackRequest:
    return RollbackRequest(
        partition_path=partition,
        file_id=file_id,
        latest_base_instant=base_instant,
        log_blocks_to_be_deleted=dict(files),
    )


def touched_partitions(plan: RollbackPlan, markers: Sequence[Marker] | None) -> list[str]:
    """Partitions in which the write may have left something, sorted."""
    found = {request.partition_path for request in plan.rollback_requests or ()}
    return sorted(found | {marker.partition for marker in markers or ()})


def full_path(storage: Storage, path: str) -> str:
    """A path below the base path as plans hold it."""
    return f"{storage.uri.rstrip('/')}/{path}"


def _joined(partition: str, name: str) -> str:
    return f"{partition}/{name}" if partition else name


def _file_id(name: str) -> str:
    parsed = parse_data_file(name)
    assert isinstance(parsed, BaseFileName | LogFileName)
    return parsed.file_id
