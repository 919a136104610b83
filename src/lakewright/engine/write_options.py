"""Options of writing, typed and checked: every name that Hudi takes, and ours.

Of several sources the nearest counts: a keyword of the call, then the options of the write, then a
property of the table, then the default. An option that no release of Hudi knows is an `OptionError`
with the nearest name; one that contradicts the table is a `ConfigError` that tells both; what Hudi
knows and lakewright neither needs nor can honour silently is either tolerated by name or refused
(`engine/hudi_options.py`). `docs/write-options.md` tells of every option.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import ValidationError, field_validator, model_validator

from lakewright.engine.file_options import FileOptions, SortMode, option
from lakewright.engine.hudi_options import nearest_option, refuse_unusable, tolerated
from lakewright.engine.row_options import RowOptions
from lakewright.engine.table_choices import names, refuse_contradictions, table_choices, truth
from lakewright.engine.time_settings import time_settings
from lakewright.errors import OptionError
from lakewright.format import property_keys as keys
from lakewright.format.table_properties import TableProperties
from lakewright.metadata.file_groups import BLOOM_FILTERS, COLUMN_STATS, RECORD_INDEX
from lakewright.txn.access import FailedWrites
from lakewright.txn.heartbeat import HeartbeatOptions

__all__ = ["FailedWrites", "SortMode", "WriteOptions"]

COMMIT_PREFIX = "hoodie.datasource.write.commitmeta.key.prefix"
LOCK_PREFIX = "hoodie.write.lock."
PAYLOAD_PREFIX = "hoodie.payload."
SERVICE_PREFIXES = (
    "hoodie.archive.",
    "hoodie.clean.",
    "hoodie.cleaner.",
    "hoodie.compact.",
    "hoodie.compaction.",
    "hoodie.keep.",
    "hoodie.memory.compaction.",
    "hoodie.metadata.compact.",
    "hoodie.timeline.",
)
SORTING_PARTITIONERS = ("RDDCustomColumnsSortPartitioner", "RowCustomColumnsSortPartitioner")


class WriteOptions(FileOptions, RowOptions):
    """How a write works."""

    # -- the commit ---------------------------------------------------------------------------
    allow_empty_commit: bool = option(
        True, "A write without rows commits too.", "hoodie.allow.empty.commit"
    )
    commit_metadata: Mapping[str, str] = option(
        {}, "Pairs that are kept in the commit, by the names they are found under."
    )
    commit_metadata_prefix: str = option(
        "_", "Options with this prefix are kept in the commit.", COMMIT_PREFIX
    )
    rollback_using_markers: bool = option(
        True,
        "A rollback takes the files to delete from markers, else from listing.",
        "hoodie.rollback.using.markers",
    )
    fail_on_duplicate_files: bool = option(
        False,
        "Files of repeated task attempts end the write instead of being deleted.",
        "hoodie.fail.job.on.duplicate.data.file.detection",
    )
    metadata_table: Literal["keep", "build", "trim", "drop"] = option(
        "keep",
        "The metadata table of a table that has one is kept right (keep; refused where it has an "
        "index that cannot be), built where there is none (build), rid of indexes that cannot be "
        "kept (trim), or dropped (drop).",
        "hoodie.metadata.enable",
    )
    column_statistics: bool = option(
        False,
        "A metadata table that is built gets statistics of columns too.",
        "hoodie.metadata.index.column.stats.enable",
    )
    statistics_columns: tuple[str, ...] | None = option(
        None,
        "The columns of these statistics, at version 8; all that can have some if not said.",
        "hoodie.metadata.index.column.stats.column.list",
    )
    record_index: bool = option(
        False,
        "A metadata table that is built gets an index of records too.",
        "hoodie.metadata.record.index.enable",
        "hoodie.metadata.global.record.level.index.enable",
    )
    partitioned_record_index: bool = option(
        False,
        "A metadata table that is built gets an index of the records of each partition, at version "
        "8; Hudi before 1.1 must not write the table then.",
        "hoodie.metadata.record.level.index.enable",
    )
    bloom_filter_index: bool = option(
        False,
        "A metadata table that is built gets the bloom filters of base files too.",
        "hoodie.metadata.index.bloom.filter.enable",
    )

    # -- other writers ------------------------------------------------------------------------
    failed_writes: FailedWrites | None = option(
        None,
        "When writes that died are rolled back; None: EAGER for a single writer, else LAZY.",
        "hoodie.clean.failed.writes.policy",
        "hoodie.cleaner.policy.failed.writes",
    )
    concurrency_mode: Literal[
        "SINGLE_WRITER", "OPTIMISTIC_CONCURRENCY_CONTROL", "NON_BLOCKING_CONCURRENCY_CONTROL"
    ] = option(
        "SINGLE_WRITER",
        "Whether other writers are expected, and how they are treated.",
        "hoodie.write.concurrency.mode",
    )
    heartbeat_interval_ms: int = option(
        60_000,
        "Milliseconds between two signs of life of a write.",
        "hoodie.client.heartbeat.interval_in_ms",
        ge=1000,
    )
    heartbeat_tolerable_misses: int = option(
        10,
        "Missed signs of life after which a write counts as dead.",
        "hoodie.client.heartbeat.tolerable.misses",
        ge=1,
    )
    lock_provider: str | None = option(
        None,
        "The lock: a class of Hudi's or a short name of ours.",
        "hoodie.write.lock.provider",
    )
    lock_wait_ms: int = option(
        60_000,
        "Milliseconds that one attempt at the lock may take.",
        "hoodie.write.lock.wait_time_ms",
        ge=0,
    )
    lock_retries: int = option(
        50, "Further attempts at the lock.", "hoodie.write.lock.client.num_retries", ge=0
    )
    lock_retry_wait_ms: int = option(
        5_000,
        "Milliseconds between two attempts at the lock.",
        "hoodie.write.lock.client.wait_time_ms_between_retry",
        ge=0,
    )
    lock_settings: Mapping[str, str] = option(
        {}, "Settings of the lock provider (`hoodie.write.lock.*`), by their full names."
    )
    conflict_retries: int = option(
        0,
        "How often a whole write is done again after a conflict.",
        "hoodie.write.num.retries.on.conflict.failures",
        ge=0,
    )
    conflict_strategy: str | None = option(
        None,
        "Class of Hudi's that decides what a conflict is.",
        "hoodie.write.lock.conflict.resolution.strategy",
    )
    clock_skew_ms: int = option(
        200,
        "Milliseconds by which the clocks of writers may differ.",
        "hoodie.time.generator.max_expected_clock_skew_ms",
        ge=0,
    )

    # -- after the commit ---------------------------------------------------------------------
    callback: bool = option(
        False, "A finished commit is told to a URL.", "hoodie.write.commit.callback.on"
    )
    callback_class: str | None = option(
        None,
        "Class of the callback; only Hudi's HTTP callback is known.",
        "hoodie.write.commit.callback.class",
    )
    callback_url: str | None = option(
        None, "Where finished commits are told.", "hoodie.write.commit.callback.http.url"
    )
    callback_timeout_s: int = option(
        3,
        "Seconds that telling may take.",
        "hoodie.write.commit.callback.http.timeout.seconds",
        ge=1,
    )
    callback_api_key: str | None = option(
        None,
        "Key that is sent with it; never printed.",
        "hoodie.write.commit.callback.http.api.key",
        repr=False,
    )
    callback_headers: str | None = option(
        None,
        "Headers that are sent with it, as `name:value;name:value`; never printed.",
        "hoodie.write.commit.callback.http.custom.headers",
        repr=False,
    )
    ignore_post_commit_failures: bool = option(
        True,
        "Cleaning or archiving that fails after the commit is a warning, else an error.",
        "hoodie.write.can.ignore.post.commit.failures",
    )
    fail_on_inline_services: bool = option(
        False,
        "A compaction that fails after the commit is an error, else a warning.",
        "hoodie.fail.writes.on.inline.table.service.exception",
    )
    table_services: bool = option(
        True, "Services may run after a write.", "hoodie.table.services.enabled"
    )
    clean_automatic: bool = option(
        True, "Old file versions are cleaned after a write.", "hoodie.clean.automatic"
    )
    clean_async: bool = option(
        False,
        "Cleaning runs beside the write.",
        "hoodie.clean.async.enabled",
        "hoodie.clean.async",
    )
    archive_automatic: bool = option(
        True, "Old instants are archived after a write.", "hoodie.archive.automatic"
    )
    archive_async: bool = option(False, "Archiving runs beside the write.", "hoodie.archive.async")
    compact_inline: bool = option(
        False, "Log files are compacted after a write.", "hoodie.compact.inline"
    )
    compact_schedule_inline: bool = option(
        False, "A compaction is planned after a write.", "hoodie.compact.schedule.inline"
    )
    compact_async: bool = option(
        True,
        "Log files are compacted beside a stream that is written.",
        "hoodie.datasource.compaction.async.enable",
    )
    cluster_inline: bool = option(
        False, "Files are clustered after a write.", "hoodie.clustering.inline"
    )
    cluster_schedule_inline: bool = option(
        False, "A clustering is planned after a write.", "hoodie.clustering.schedule.inline"
    )
    log_compact_inline: bool = option(
        False, "Log blocks are compacted after a write.", "hoodie.log.compaction.inline"
    )
    rollback_delay_mins: int = option(
        60,
        "Minutes after which a removable plan that nobody executes is removed.",
        "table_service_rollback_delay",
        "hoodie.table.services.rollback.delay.mins",
        ge=0,
    )
    service_settings: Mapping[str, str] = option(
        {}, "Settings of cleaning, archiving and compaction, by their full names."
    )

    @model_validator(mode="after")
    def _agree(self) -> Self:
        policy = self.failed_writes
        if self.multi_writer and policy is FailedWrites.EAGER:
            raise ValueError(
                "failed_writes=EAGER contradicts concurrency_mode="
                f"{self.concurrency_mode}: it would roll back the other writers"
            )
        if self.compact_inline and self.compact_schedule_inline:
            raise ValueError("compact_inline contradicts compact_schedule_inline: choose one")
        if self.callback and not self.callback_url:
            raise ValueError("callback=True needs callback_url")
        partitioner = (self.partitioner_class or SORTING_PARTITIONERS[0]).rsplit(".", 1)[-1]
        if partitioner not in SORTING_PARTITIONERS:
            raise ValueError(f"partitioner_class={self.partitioner_class} cannot be run here")
        return self

    @field_validator(
        "sort_columns",
        "overwrite_partitions",
        "delete_partitions",
        "bucket_fields",
        "statistics_columns",
        mode="before",
    )
    @classmethod
    def _listed(cls, value: object) -> object:
        return names(value) if isinstance(value, str) else value

    @field_validator(
        "sort_mode",
        "concurrency_mode",
        "overwrite_mode",
        "failed_writes",
        "bucket_engine",
        mode="before",
    )
    @classmethod
    def _upper(cls, value: object) -> object:
        return value.strip().upper() if isinstance(value, str) else value

    @field_validator("parquet_codec", "log_block_format", "duplicates", mode="before")
    @classmethod
    def _lower(cls, value: object) -> object:
        return value.strip().lower() if isinstance(value, str) else value

    @field_validator("metadata_table", mode="before")
    @classmethod
    def _kept_or_dropped(cls, value: object) -> object:
        """`hoodie.metadata.enable` makes Hudi build or drop the metadata table."""
        return {"true": "build", "false": "drop"}.get(str(value).strip().lower(), value)

    @property
    def indexes(self) -> frozenset[str]:
        """Indexes that a metadata table gets besides `files`, if it is built."""
        chosen = {
            COLUMN_STATS: self.column_statistics,
            RECORD_INDEX: self.record_index or self.partitioned_record_index,
            BLOOM_FILTERS: self.bloom_filter_index,
        }
        return frozenset(index for index, wanted in chosen.items() if wanted)

    @property
    def records_per_partition(self) -> bool | None:
        """Whether the record index that is asked for is one per partition; None if none is."""
        asked = self.record_index or self.partitioned_record_index
        return self.partitioned_record_index if asked else None

    @property
    def multi_writer(self) -> bool:
        """Whether other writers are expected."""
        return self.concurrency_mode != "SINGLE_WRITER"

    @property
    def failed_writes_policy(self) -> FailedWrites:
        """The policy that counts."""
        if self.failed_writes is not None:
            return self.failed_writes
        return FailedWrites.LAZY if self.multi_writer else FailedWrites.EAGER

    @property
    def heartbeat(self) -> HeartbeatOptions:
        """Signs of life, as a transaction takes them."""
        return HeartbeatOptions(self.heartbeat_interval_ms, self.heartbeat_tolerable_misses)

    @property
    def lock_patience_s(self) -> float:
        """Seconds that the lock is waited for in all."""
        tries = self.lock_retries + 1
        return (tries * self.lock_wait_ms + self.lock_retries * self.lock_retry_wait_ms) / 1000

    @classmethod
    def from_hudi(
        cls,
        options: Mapping[str, str],
        *,
        table: TableProperties | None = None,
        **keywords: Any,
    ) -> Self:
        """Options from Hudi's names and keywords of our own, over what the table stores.

        `OptionError` for an unknown name or a bad value, `ConfigError` for one that contradicts
        the table or cannot be honoured.
        """
        options = {key: str(value) for key, value in options.items()}
        prefix = options.get(COMMIT_PREFIX, "_")
        for key in options:
            if not (_known(key) or (prefix and key.startswith(prefix))):
                raise _unknown(key)
        refuse_unusable(options)
        if table is not None:
            refuse_contradictions(options, table)
        stored = table.values if table is not None else {}
        services = _of_services({**stored, **options})
        given = _stored(table) | _given(options, prefix) | services | keywords
        try:
            return cls(**given)
        except ValidationError as error:
            raise _invalid(error) from None

    @classmethod
    def of(cls, **keywords: Any) -> Self:
        """Options from keywords of our own; `OptionError` for an unknown one or a bad value."""
        return cls.from_hudi({}, **keywords)


def hudi_names() -> dict[str, str]:
    """The field of every name that Hudi knows it under."""
    found = {}
    for field, info in WriteOptions.model_fields.items():
        extra = info.json_schema_extra
        for name in extra.get("hudi", ()) if isinstance(extra, dict) else ():  # type: ignore[union-attr]
            found[str(name)] = field
    return found


_FIELD_OF = hudi_names()


def _known(key: str) -> bool:
    if key in _FIELD_OF or tolerated(key) or table_choices({key: ""}):
        return True
    if key.startswith((LOCK_PREFIX, PAYLOAD_PREFIX)):
        return True
    # What is not Hudi's (a path, options of the engine) is not ours to judge.
    return not key.startswith("hoodie.") and nearest_option(key, _FIELD_OF) is None


def _given(options: Mapping[str, str], prefix: str) -> dict[str, Any]:
    """Options by field."""
    given: dict[str, Any] = {}
    told_by: dict[str, str] = {}
    for key, value in options.items():
        field = _FIELD_OF.get(key)
        if field is None:
            continue
        if field in given and given[field] != _typed(key, field, value):
            raise OptionError(
                f"{key}={value} contradicts {told_by[field]}={options[told_by[field]]}: both mean "
                f"{field}.",
                hint="Give one of them.",
                context={"option": key, "other": told_by[field]},
            )
        given[field], told_by[field] = _typed(key, field, value), key
    choices = table_choices(options)
    timed = {k: v for k, v in choices.items() if k.startswith(keys.TIME_KEYGEN_PREFIX)}
    parts = [name.partition(":") for name in names(choices.get(keys.PARTITION_FIELDS))]
    maps = {
        "time_settings": time_settings(timed),
        "partition_types": {name: kind.upper() for name, _, kind in parts if kind},
        "lock_settings": {k: v for k, v in options.items() if k.startswith(LOCK_PREFIX)},
        "merge_settings": {k: v for k, v in options.items() if k.startswith(PAYLOAD_PREFIX)},
        "commit_metadata": {k: v for k, v in options.items() if prefix and k.startswith(prefix)},
    }
    return given | {field: pairs for field, pairs in maps.items() if pairs}


def _stored(table: TableProperties | None) -> dict[str, Any]:
    """What the table's own properties say about writing."""
    if table is None:
        return {}
    stored = table.values
    return {f: _typed(key, f, stored[key]) for key, f in _FIELD_OF.items() if key in stored}


def _of_services(pairs: Mapping[str, str]) -> dict[str, Any]:
    """What services make of it is checked by themselves."""
    found = {key: value for key, value in pairs.items() if key.startswith(SERVICE_PREFIXES)}
    return {"service_settings": found} if found else {}


def _typed(key: str, field: str, value: str) -> object:
    """A switch as a truth value: other words than true and false are not guessed at."""
    kind = str(WriteOptions.model_fields[field].annotation)
    return truth(key, value) if "bool" in kind or "False" in kind else value


def _unknown(key: str) -> OptionError:
    near = nearest_option(key, _FIELD_OF)
    return OptionError(
        f"There is no option {key}.",
        hint=f"Did you mean {near}?" if near else "docs/write-options.md lists all options.",
        context={"option": key},
    )


def _invalid(error: ValidationError) -> OptionError:
    first = error.errors(include_input=False, include_url=False)[0]
    field = str(first["loc"][0]) if first["loc"] else ""
    near = nearest_option(field, WriteOptions.model_fields) if field else None
    if first["type"] == "extra_forbidden":
        return OptionError(
            f"There is no option {field}.",
            hint=f"Did you mean {near}?" if near else "docs/write-options.md lists all options.",
            context={"option": field},
        )
    spellings = [name for name, mine in _FIELD_OF.items() if mine == field]
    return OptionError(
        f"{field or 'The options'} cannot be used: {first['msg']}.",
        hint="docs/write-options.md tells what each option takes.",
        context={"option": field, "hudi": ", ".join(spellings)} if field else {},
    )
