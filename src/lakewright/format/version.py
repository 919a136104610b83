"""Table versions and what each of them changes: the one place where versions differ.

Everywhere else a version is asked by capability (`version.completion_time_in_name`), never compared
by number. Versions 6 (Hudi 0.14, 0.15), 8 (1.0) and 9 (1.1, 1.2) are known; any other is refused
with `UnsupportedTableError` that says what to do about it, before anything else is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from lakewright.errors import UnsupportedTableError

__all__ = ["SUPPORTED_VERSIONS", "RecordLevel", "TableVersion"]


class RecordLevel(IntEnum):
    """Releases at which the Avro records of the timeline gained fields."""

    R0_14 = 0
    R0_15 = 1
    R1_0_0 = 2
    R1_0_2 = 3


@dataclass(frozen=True, slots=True)
class TableVersion:
    """One table version as a set of capabilities."""

    number: int
    releases: str
    """Hudi releases that write it by default."""
    layout_version: int
    """`hoodie.timeline.layout.version` that belongs to it."""
    writable: bool
    """Whether lakewright writes it."""

    timeline_in_own_folder: bool
    """Instants live in `.hoodie/<hoodie.timeline.path>`, not directly in `.hoodie`."""
    completion_time_in_name: bool
    """Completed instants are `T_C.action`; otherwise the file's modification time counts."""
    commit_metadata_avro: bool
    """Commit, deltacommit and replacecommit content is Avro; otherwise JSON."""
    pending_clustering_action: str
    """Action under which a clustering is pending."""
    history_is_lsm: bool
    """Archived instants are Parquet files with manifests; otherwise log files of Avro records."""
    record_level: RecordLevel
    """Fields of the Avro records that its writers know."""

    log_name_has_delta_instant: bool
    """Log files are named after the delta commit that wrote them; otherwise after their slice."""
    slices_by_completion_time: bool
    """Log files join file slices by completion time; otherwise by the instant in their name."""
    filters_blocks_by_timeline: bool
    """Log blocks of uncommitted instants are skipped; otherwise whole files are dropped."""
    rollback_by_log_block: bool
    """A failed delta commit is undone by command blocks; otherwise by deleting its log files."""
    log_header_max: int
    """Highest ordinal of a log block header that its oldest reader survives."""
    partial_log_blocks: bool
    """Log blocks may hold partial records and positions with their base instant."""

    merge_mode_stored: bool
    """`hoodie.record.merge.mode` is stored; otherwise inferred from the payload class."""
    payload_semantics: str
    """How payload classes merge: as the `0.x` or the `1.x` releases do."""
    partial_update_modes: bool
    """`hoodie.table.partial.update.mode` has a meaning."""
    ordering_fields_key: str
    """Property under which writers store the ordering fields."""
    key_generator_stored_as_type: bool
    """Writers store the key generator's type; otherwise its class."""
    typed_partition_fields: bool
    """Custom key generators store `field:TYPE` in the partition fields."""

    bucket_values_span_commas: bool
    """Bucket indexes take a composite key apart at its field names; otherwise at every comma."""
    incremental_by_completion_time: bool
    """Incremental ranges are completion times; otherwise requested times."""
    ranges_skip_lone_logs: bool
    """In a range, a log compaction counts only with an instant that it merged."""
    change_images_by_row: bool
    """Change queries print stored rows as rows in table order; otherwise in hash order, and as Avro
    records what they compare."""
    metadata_operation_suffixes: bool
    """Services of the metadata table use the data instant plus three digits."""
    defines_indexes: bool
    """Indexes have definitions, and some need one; otherwise only newer releases leave some."""

    @classmethod
    def of(cls, number: int) -> TableVersion:
        """The version `number`, or `UnsupportedTableError` naming it and the way out."""
        found = _VERSIONS.get(number)
        if found is None:
            raise UnsupportedTableError(
                f"Table version {number} is not supported (hoodie.table.version={number}).",
                hint=_way_out(number),
                context={"property": "hoodie.table.version", "value": number},
            )
        return found

    def __str__(self) -> str:
        return str(self.number)


def _way_out(number: int) -> str:
    if number < 6:
        return (
            "Upgrade the table to version 6 with a Hudi release before 1.0 (0.14 or 0.15: run its "
            "`upgrade_table` procedure or one write), then open it again."
        )
    if number == 7:
        return (
            "Version 7 is a bridge inside Hudi's upgrade from 6 to 8 and never a finished table: "
            "run Hudi's `upgrade_table` to version 8 or `downgrade_table` to version 6."
        )
    return (
        "The table was written by a newer Hudi than this release knows. Downgrade it to version 9, "
        "8 or 6 with that Hudi's `downgrade_table`, or use a newer lakewright."
    )


_SIX = TableVersion(
    number=6,
    releases="0.14, 0.15",
    layout_version=1,
    writable=True,
    timeline_in_own_folder=False,
    completion_time_in_name=False,
    commit_metadata_avro=False,
    pending_clustering_action="replacecommit",
    history_is_lsm=False,
    record_level=RecordLevel.R0_15,
    log_name_has_delta_instant=False,
    slices_by_completion_time=False,
    filters_blocks_by_timeline=True,
    rollback_by_log_block=True,
    log_header_max=6,
    partial_log_blocks=False,
    merge_mode_stored=False,
    payload_semantics="0.x",
    partial_update_modes=False,
    ordering_fields_key="hoodie.table.precombine.field",
    key_generator_stored_as_type=False,
    typed_partition_fields=False,
    bucket_values_span_commas=False,
    incremental_by_completion_time=False,
    ranges_skip_lone_logs=False,
    change_images_by_row=False,
    metadata_operation_suffixes=True,
    defines_indexes=False,
)

_EIGHT = TableVersion(
    number=8,
    releases="1.0",
    layout_version=2,
    writable=True,
    timeline_in_own_folder=True,
    completion_time_in_name=True,
    commit_metadata_avro=True,
    pending_clustering_action="clustering",
    history_is_lsm=True,
    record_level=RecordLevel.R1_0_2,
    log_name_has_delta_instant=True,
    slices_by_completion_time=True,
    filters_blocks_by_timeline=False,
    rollback_by_log_block=False,
    log_header_max=8,
    partial_log_blocks=True,
    merge_mode_stored=True,
    payload_semantics="1.x",
    partial_update_modes=False,
    ordering_fields_key="hoodie.table.precombine.field",
    key_generator_stored_as_type=True,
    typed_partition_fields=True,
    bucket_values_span_commas=True,
    incremental_by_completion_time=True,
    ranges_skip_lone_logs=False,
    change_images_by_row=False,
    metadata_operation_suffixes=False,
    defines_indexes=True,
)

_NINE = TableVersion(
    number=9,
    releases="1.1, 1.2",
    layout_version=2,
    writable=False,
    timeline_in_own_folder=True,
    completion_time_in_name=True,
    commit_metadata_avro=True,
    pending_clustering_action="clustering",
    history_is_lsm=True,
    record_level=RecordLevel.R1_0_2,
    log_name_has_delta_instant=True,
    slices_by_completion_time=True,
    filters_blocks_by_timeline=False,
    rollback_by_log_block=False,
    log_header_max=9,
    partial_log_blocks=True,
    merge_mode_stored=True,
    payload_semantics="1.x",
    partial_update_modes=True,
    ordering_fields_key="hoodie.table.ordering.fields",
    key_generator_stored_as_type=True,
    typed_partition_fields=True,
    bucket_values_span_commas=True,
    incremental_by_completion_time=True,
    ranges_skip_lone_logs=True,
    change_images_by_row=True,
    metadata_operation_suffixes=False,
    defines_indexes=True,
)

_VERSIONS = {v.number: v for v in (_SIX, _EIGHT, _NINE)}

SUPPORTED_VERSIONS: tuple[TableVersion, ...] = tuple(_VERSIONS.values())
"""Every version that can be read, oldest first."""
