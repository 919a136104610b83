"""The properties file of a table: loading with recovery, checks, updating.

`load_properties` reads like Hudi does: the main file, else its backup, with retries while a writer
is in the middle of an update; a wrong checksum makes a file invalid. What lakewright cannot handle
is refused here with `UnsupportedTableError` that names property and value, before any other file
is read. `update_properties` keeps Hudi's file names and recovery rules but replaces the main file
atomically, so that a reader always finds whole properties; its caller holds the table lock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import IntEnum

from lakewright.errors import (
    CorruptFileError,
    FormatError,
    LakewrightError,
    NotFoundError,
    TableNotFoundError,
    UnsupportedTableError,
)
from lakewright.format import property_keys as keys
from lakewright.format.key_generator import KeyGeneratorType
from lakewright.format.property_text import (
    date_comment,
    format_properties,
    iso_instant,
    parse_properties,
    property_offset,
)
from lakewright.format.table_properties import (
    META_FOLDER,
    TableProperties,
    checksum,
    stored_number,
)
from lakewright.runtime.cancel import NEVER_CANCELLED
from lakewright.runtime.clock import Clock
from lakewright.storage.base import Storage

__all__ = [
    "BACKUP_FILE",
    "META_FOLDER",
    "PROPERTIES_FILE",
    "KeyGeneratorType",
    "TableProperties",
    "checksum",
    "format_properties",
    "load_properties",
    "parse_properties",
    "update_properties",
]

PROPERTIES_FILE = f"{META_FOLDER}/hoodie.properties"
BACKUP_FILE = f"{META_FOLDER}/hoodie.properties.backup"

LOAD_TRIES = 5
LOAD_PAUSE_S = 1.0


# ---- what a table must be to be opened ---------------------------------------------------------


def _check(properties: TableProperties, *, metadata_table: bool) -> None:
    version = properties.version
    layout = stored_number(properties.values, keys.LAYOUT_VERSION)
    if layout != version.layout_version:
        raise UnsupportedTableError(
            f"{keys.LAYOUT_VERSION}={layout} does not belong to {keys.VERSION}={version}.",
            hint=f"Version {version} has timeline layout {version.layout_version}. The table was "
            "probably left in the middle of an upgrade: finish it with the tool that began it.",
            context={"property": keys.LAYOUT_VERSION, "value": layout},
        )
    if not properties.name:
        raise FormatError(
            f"{keys.NAME} is missing.",
            hint="Restore hoodie.properties from its backup or from another copy.",
            context={"path": PROPERTIES_FILE, "offset": 0},
        )
    if properties.table_type not in ("COPY_ON_WRITE", "MERGE_ON_READ"):
        _refuse(properties, keys.TYPE, "it is no known table type")
    if not metadata_table:
        _check_base_files(properties)
    if properties.values.get(keys.BOOTSTRAP_BASE_PATH):
        _refuse(properties, keys.BOOTSTRAP_BASE_PATH, "bootstrapped tables are not supported")
    if properties.values.get(keys.META_FIELDS_MODE, "ALL").upper() not in ("ALL", "NONE"):
        _refuse(properties, keys.META_FIELDS_MODE, "only ALL and NONE are supported")
    if properties.values.get(keys.TABLE_FORMAT, "native").lower() != "native":
        _refuse(properties, keys.TABLE_FORMAT, "only native is supported")


def _check_base_files(properties: TableProperties) -> None:
    if properties.flag(keys.MULTIPLE_FORMATS, False):
        _refuse(properties, keys.MULTIPLE_FORMATS, "mixed base file formats are not supported")
    if properties.base_file_format != "PARQUET":
        stored = keys.BASE_FILE_FORMAT in properties.values
        key = keys.BASE_FILE_FORMAT if stored else keys.BASE_FILE_FORMAT_OLD
        _refuse(properties, key, "only PARQUET base files are supported")


def _refuse(properties: TableProperties, key: str, why: str) -> None:
    value = properties.values[key]
    raise UnsupportedTableError(
        f"The table cannot be opened: {key}={value}; {why}.",
        hint="Rewrite the table with Hudi without this feature, or read it with Hudi.",
        context={"table": properties.name, "property": key, "value": value},
    )


# ---- loading -----------------------------------------------------------------------------------


def load_properties(
    storage: Storage, *, clock: Clock, metadata_table: bool = False
) -> TableProperties:
    """The checked properties of the table at the root of `storage`.

    Raises `TableNotFoundError` at once where there is no `.hoodie` folder, `CorruptFileError` if
    only invalid files are there after all tries, `UnsupportedTableError` for what is refused.
    """
    properties = TableProperties(_load(storage, clock))
    _check(properties, metadata_table=metadata_table)
    return properties


def _load(storage: Storage, clock: Clock) -> dict[str, str]:
    invalid: tuple[str, int] | None = None
    for attempt in range(LOAD_TRIES):
        if attempt:
            clock.sleep(LOAD_PAUSE_S)
        invalid, unchecked = None, None
        for path in (PROPERTIES_FILE, BACKUP_FILE):
            try:
                data = storage.read(path)
                values = parse_properties(data, path=path)
            except NotFoundError:
                continue
            except FormatError as error:
                invalid = path, int(str(error.context["offset"]))
                continue
            trust = _trust(values)
            if trust is _Trust.CHECKED:
                return values
            if trust is _Trust.UNCHECKED:
                unchecked = unchecked or values
            else:
                invalid = path, property_offset(data, keys.CHECKSUM)
        if unchecked is not None:
            return unchecked
        if invalid is None and not storage.exists(META_FOLDER):
            raise TableNotFoundError(
                f"There is no Hudi table at {storage.uri}.",
                hint="Check the path: a table has a .hoodie folder with hoodie.properties.",
                context={"table": storage.uri},
            )
    raise _not_loaded(storage, invalid)


def _not_loaded(storage: Storage, invalid: tuple[str, int] | None) -> LakewrightError:
    if invalid is not None:
        path, offset = invalid
        return CorruptFileError(
            f"The properties of the table are invalid: {path} does not match its checksum.",
            hint="Restore hoodie.properties from another copy of the table.",
            context={"table": storage.uri, "path": path, "offset": offset},
        )
    return TableNotFoundError(
        f"{storage.uri} has a .hoodie folder, but no hoodie.properties.",
        hint="The table was not created to the end, or its properties were deleted; restore them.",
        context={"table": storage.uri, "path": PROPERTIES_FILE},
    )


class _Trust(IntEnum):
    """How far a properties file can be trusted to be whole."""

    INVALID = 0
    UNCHECKED = 1
    """From before Hudi 0.11, or cut off before its checksum: good only if no other is checked."""
    CHECKED = 2


def _trust(values: Mapping[str, str]) -> _Trust:
    stored = values.get(keys.CHECKSUM)
    if stored is None:
        return _Trust.UNCHECKED if keys.NAME in values else _Trust.INVALID
    expected = checksum(values.get(keys.DATABASE), values.get(keys.NAME, ""))
    return _Trust.CHECKED if stored == expected else _Trust.INVALID


# ---- updating ----------------------------------------------------------------------------------


def update_properties(
    storage: Storage,
    updates: Mapping[str, str],
    removals: Collection[str] = (),
    *,
    clock: Clock,
    check: Callable[[], None] = NEVER_CANCELLED.check,
) -> TableProperties:
    """Store `updates`, drop `removals`, keep every other key; the new properties.

    The caller holds the table lock, and `check` raises if it was lost: it is asked before each of
    the two changes. A crash at any point leaves the old or the new properties readable for every
    reader, and the next update tidies up.
    """
    _recover(storage)
    current = _load(storage, clock)
    new = {k: v for k, v in {**current, **updates}.items() if k not in removals}
    new[keys.CHECKSUM] = checksum(new.get(keys.DATABASE), new.get(keys.NAME, ""))
    now_ms = clock.now_ms()
    comments = (f"Updated at {iso_instant(now_ms)}", date_comment(now_ms))
    check()
    storage.create_if_absent(BACKUP_FILE, format_properties(current, comments))
    check()
    storage.replace(PROPERTIES_FILE, format_properties(new, comments))
    if parse_properties(storage.read(PROPERTIES_FILE), path=PROPERTIES_FILE) != new:
        raise CorruptFileError(
            "The rewritten table properties read back differently.",
            hint="Somebody else writes the properties at the same time: make every writer use the "
            "same lock. hoodie.properties.backup holds the state before the update.",
            context={"table": storage.uri, "path": PROPERTIES_FILE},
        )
    storage.delete(BACKUP_FILE)
    return TableProperties(new)


def _recover(storage: Storage) -> None:
    """Finish or undo an update that crashed: the more trusted file wins, then only one is left."""
    _, main = _found(storage, PROPERTIES_FILE)
    data, backup = _found(storage, BACKUP_FILE)
    if main is _Trust.INVALID and backup is _Trust.INVALID:
        raise CorruptFileError(
            "Neither hoodie.properties nor its backup is valid.",
            hint="Restore hoodie.properties from another copy before changing the table.",
            context={"table": storage.uri, "path": PROPERTIES_FILE},
        )
    if backup > main:
        storage.replace(PROPERTIES_FILE, data)
    storage.delete(BACKUP_FILE)


def _found(storage: Storage, path: str) -> tuple[bytes, _Trust]:
    try:
        data = storage.read(path)
        return data, _trust(parse_properties(data, path=path))
    except (NotFoundError, FormatError):
        return b"", _Trust.INVALID
