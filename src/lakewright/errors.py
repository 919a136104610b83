"""The one error tree: what happened, what it means, what to do.

Every error carries a stable `code` (for programs), a `hint` (the next step, for people), a
`context` of plain values (table, file, offset, instant, holder) and `retryable`. Errors are
caught by type, never by text. Children of the root are named after what the caller can do about
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

__all__ = [
    "AlreadyExistsError",
    "CancelledError",
    "ConfigError",
    "ConflictError",
    "CorruptFileError",
    "FencedError",
    "FilterError",
    "FormatError",
    "IndexesChangedError",
    "InputError",
    "InstantNotFoundError",
    "LakewrightError",
    "LockHeldError",
    "LockLostError",
    "LockRequiredError",
    "MergeError",
    "MergerNotFoundError",
    "MetadataTableError",
    "MigrationError",
    "MissingDependencyError",
    "NotFoundError",
    "OptionError",
    "OutcomeUnknownError",
    "PlanBusyError",
    "PlanStateError",
    "PreconditionFailedError",
    "SchemaError",
    "ServiceError",
    "StorageDeniedError",
    "StorageError",
    "StorageUnavailableError",
    "TableError",
    "TableNotFoundError",
    "UnsupportedTableError",
    "WriteConflictError",
]


class LakewrightError(Exception):
    """Root of every error raised on purpose by lakewright."""

    code: ClassVar[str] = "lakewright"

    def __init__(
        self,
        message: str,
        *,
        hint: str,
        context: Mapping[str, object] | None = None,
        retryable: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.context: dict[str, object] = dict(context or {})
        self.retryable = retryable

    def __str__(self) -> str:
        where = ", ".join(f"{k}={v}" for k, v in self.context.items())
        return f"{self.message}{f' [{where}]' if where else ''} Hint: {self.hint}"

    def to_dict(self) -> dict[str, object]:
        """What programs read: code, message, hint, context and whether a retry may help."""
        return {
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "context": self.context,
            "retryable": self.retryable,
        }

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.hint, self.context, self.retryable))


def _rebuild(
    kind: type[LakewrightError],
    message: str,
    hint: str,
    context: Mapping[str, object],
    retryable: bool,
) -> LakewrightError:
    return kind(message, hint=hint, context=context, retryable=retryable)


class TableError(LakewrightError):
    """The table as a whole cannot be used as asked."""

    code = "table"


class TableNotFoundError(TableError):
    """There is no Hudi table at the given place."""

    code = "table.not_found"


class UnsupportedTableError(TableError):
    """The table uses a version or feature that lakewright refuses instead of guessing."""

    code = "table.unsupported"


class InstantNotFoundError(TableError):
    """The asked instant, date or savepoint does not select a readable snapshot."""

    code = "table.instant_not_found"


class FormatError(LakewrightError):
    """Bytes on storage do not follow the format; `context` has the file and the offset if known."""

    code = "format"


class CorruptFileError(FormatError):
    """A file is damaged where the format does not allow it to be skipped."""

    code = "format.corrupt"


class SchemaError(FormatError):
    """A schema cannot be parsed, mapped or converted to the asked one."""

    code = "format.schema"


class MetadataTableError(FormatError):
    """The metadata table cannot be trusted; readers fall back to listing."""

    code = "format.metadata_table"


class ConfigError(LakewrightError):
    """The caller's configuration is wrong or contradicts the table."""

    code = "config"


class OptionError(ConfigError):
    """An option has an unknown name or an illegal value."""

    code = "config.option"


class FilterError(ConfigError):
    """A filter does not parse, or does not fit the table's columns."""

    code = "config.filter"


class MissingDependencyError(ConfigError):
    """A feature needs an optional package that is not installed."""

    code = "config.missing_dependency"


class LockRequiredError(ConfigError):
    """Others may write the table, and the caller did not say by which lock to keep out of their
    way."""

    code = "config.lock_required"


class InputError(LakewrightError):
    """The rows to be written do not fit the table; nothing was written."""

    code = "input"


class ConflictError(LakewrightError):
    """Another writer or service got there first."""

    code = "conflict"


class LockHeldError(ConflictError):
    """Somebody else held the table's lock for as long as the caller would wait."""

    code = "conflict.lock_held"


class LockLostError(ConflictError):
    """The lock may have passed to somebody else while it was needed; nothing was published."""

    code = "conflict.lock_lost"


class FencedError(ConflictError):
    """The instant is no longer this writer's to publish: rolled back, completed, or expired."""

    code = "conflict.fenced"


class WriteConflictError(ConflictError):
    """Another write changed what this one was based on."""

    code = "conflict.write"


class IndexesChangedError(WriteConflictError):
    """The table has other indexes now than a write has prepared."""

    code = "conflict.indexes"


class MergeError(LakewrightError):
    """Records cannot be merged by the table's rule."""

    code = "merge"


class MergerNotFoundError(MergeError):
    """No implementation is registered for the table's merge strategy or payload class."""

    code = "merge.not_found"


class MigrationError(LakewrightError):
    """A table cannot be moved between versions as asked."""

    code = "migration"


class ServiceError(LakewrightError):
    """A table service cannot run or did not finish."""

    code = "service"


class PlanBusyError(ServiceError):
    """Another process executes the plan."""

    code = "service.plan_busy"


class PlanStateError(ServiceError):
    """The plan cannot be executed as it stands: it is completed, gone, or to be rolled back."""

    code = "service.plan_state"


class CancelledError(LakewrightError):
    """The caller cancelled the work before it was published."""

    code = "cancelled"


class StorageError(LakewrightError):
    """The storage below the table failed."""

    code = "storage"


class NotFoundError(StorageError):
    """The object does not exist."""

    code = "storage.not_found"


class AlreadyExistsError(StorageError):
    """A create-if-absent found the object in place."""

    code = "storage.already_exists"


class PreconditionFailedError(StorageError):
    """A conditional replace found another version than expected."""

    code = "storage.precondition_failed"


class StorageDeniedError(StorageError):
    """The storage refused the credentials or the permission."""

    code = "storage.denied"


class StorageUnavailableError(StorageError):
    """A passing failure; the retry budget was spent."""

    code = "storage.unavailable"


class OutcomeUnknownError(StorageError):
    """A write may or may not have happened, and it could not be resolved."""

    code = "storage.outcome_unknown"
