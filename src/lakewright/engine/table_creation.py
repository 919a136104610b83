"""Creating a table: the folders of its layout, then its properties, with exactly one winner.

The properties file makes a folder a table; it is published last and only if no other is there, so
of several creators one wins and the others get a `TableError`. Nothing is created over a table, nor
in a folder that holds anything else. A creation that was killed leaves empty folders at most, and
can be done again.
"""

from __future__ import annotations

from lakewright.engine.new_table import NewTable
from lakewright.errors import AlreadyExistsError, NotFoundError, TableError
from lakewright.format.properties import META_FOLDER, PROPERTIES_FILE
from lakewright.format.table_folder import PLACEHOLDER, found_table
from lakewright.format.table_properties import TableProperties
from lakewright.runtime.clock import Clock
from lakewright.runtime.random import Random
from lakewright.storage.base import Storage

__all__ = ["create_table"]


def create_table(
    storage: Storage, spec: NewTable, *, clock: Clock, random: Random
) -> TableProperties:
    """Create an empty table at the root of `storage`; its properties.

    Raises `ConfigError` or `SchemaError` for a spec that cannot work, before anything is written,
    and `TableError` where a table or anything else is already.
    """
    properties = TableProperties(spec.properties())
    _refuse_occupied(storage, properties)
    try:
        found_table(storage, properties, clock=clock, random=random)
    except AlreadyExistsError:
        raise _there_already(storage) from None
    return properties


def _refuse_occupied(storage: Storage, properties: TableProperties) -> None:
    try:
        names = set(storage.names())
    except NotFoundError:
        return
    if META_FOLDER in names:
        if storage.exists(PROPERTIES_FILE):
            raise _there_already(storage)
        kept = f"{properties.timeline_folder}/{PLACEHOLDER}"
        names = {info.path for info in storage.walk(META_FOLDER)} - {kept} | (names - {META_FOLDER})
    if names:
        example = min(names)
        raise TableError(
            f"{storage.uri} is not empty: there is {example}, but no Hudi table.",
            hint="Create the table in a folder of its own, or remove what is there.",
            context={"table": storage.uri, "path": example},
        )


def _there_already(storage: Storage) -> TableError:
    return TableError(
        f"There is a table at {storage.uri} already.",
        hint="Open it and write to it, or choose another place.",
        context={"table": storage.uri, "path": PROPERTIES_FILE},
    )
