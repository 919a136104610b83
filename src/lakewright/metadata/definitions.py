"""Index definitions: which columns an index is about, and by which rules it was built.

They live in one JSON file from table version 8 on. A table of version 6 has none, and neither has
the `files` index. A definition without a version is of version 1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from lakewright.codec.json_text import json_offset, load_json
from lakewright.errors import MetadataTableError, NotFoundError
from lakewright.format.table_properties import TableProperties
from lakewright.storage.base import Storage

__all__ = [
    "DEFAULT_PATH",
    "IndexDefinition",
    "format_definitions",
    "keeps_keys_per_partition",
    "load_definitions",
    "parse_definitions",
    "record_index_definition",
    "secondary_index_on",
]

DEFAULT_PATH: Final = ".hoodie/.index_defs/index.json"
_RECORD_INDEX: Final = "record_index"
_PER_PARTITION: Final = "isPartitioned"


@dataclass(frozen=True, slots=True)
class IndexDefinition:
    """One index of the metadata table."""

    name: str
    """Partition of the metadata table."""
    type: str
    function: str
    source_fields: tuple[str, ...]
    options: Mapping[str, str]
    version: str = "V1"

    @property
    def hashes_secondary_key_only(self) -> bool:
        """Whether a secondary index spreads its keys by the indexed value alone."""
        return self.version != "V1"

    @property
    def has_nulls(self) -> bool:
        """Whether a secondary index has entries of records without a value: Hudi 1.0 makes none."""
        return self.version != "V1"

    @property
    def is_partitioned(self) -> bool:
        """Whether a record index keeps file groups per data partition."""
        return self.options.get(_PER_PARTITION, "false").lower() == "true"


def record_index_definition(*, per_partition: bool) -> IndexDefinition:
    """What Hudi 1.1 and later say about a record index; before that, each was one of all keys."""
    options = {_PER_PARTITION: str(per_partition).lower()}
    return IndexDefinition(_RECORD_INDEX, _RECORD_INDEX, "", (), options)


def keeps_keys_per_partition(storage: Storage, properties: TableProperties) -> bool:
    """Whether a table says that its record index is one per partition."""
    definition = load_definitions(storage, properties).get(_RECORD_INDEX)
    return definition is not None and definition.is_partitioned


def secondary_index_on(name: str, column: str) -> IndexDefinition:
    """A secondary index on one column, as Hudi 1.0 defines it."""
    return IndexDefinition(name, "secondary_index", "identity", (column,), {})


def load_definitions(storage: Storage, properties: TableProperties) -> dict[str, IndexDefinition]:
    """The definitions of a table by index name; empty if it has none."""
    path = properties.index_definitions_path or DEFAULT_PATH
    try:
        return parse_definitions(storage.read(path), path=path)
    except NotFoundError:
        return {}


def parse_definitions(data: bytes, *, path: str = "") -> dict[str, IndexDefinition]:
    """Read the JSON file. Unknown attributes are ignored; a broken file is an error."""
    try:
        entries = load_json(data)["indexDefinitions"] if data.strip() else {}
        return {name: _definition(name, entry) for name, entry in entries.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as broken:
        raise MetadataTableError(
            "The index definitions cannot be read.",
            hint="Repair the file from another copy of the table, or let Hudi rebuild the indexes.",
            context={"path": path, "offset": json_offset(broken)},
        ) from broken


def format_definitions(definitions: Mapping[str, IndexDefinition]) -> bytes:
    """The JSON file of definitions of version 1, as Hudi 1.0 writes it."""
    entries = {
        name: {
            "indexName": d.name,
            "indexType": d.type,
            "indexFunction": d.function,
            "sourceFields": list(d.source_fields),
            "indexOptions": dict(d.options),
        }
        for name, d in definitions.items()
    }
    return json.dumps({"indexDefinitions": entries}, indent=2).encode()


def _definition(name: str, entry: Mapping[str, Any]) -> IndexDefinition:
    return IndexDefinition(
        name=str(entry.get("indexName") or name),
        type=str(entry.get("indexType") or ""),
        function=str(entry.get("indexFunction") or ""),
        source_fields=tuple(str(f) for f in entry.get("sourceFields") or ()),
        options={str(k): str(v) for k, v in (entry.get("indexOptions") or {}).items()},
        version=str(entry.get("version") or "V1"),
    )
