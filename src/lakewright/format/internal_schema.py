"""Schema-on-read: schemas with column ids, their history, and matching columns by id.

With schema-on-read a column keeps its id through renames and moves, and a dropped and re-added name
gets a new one. A file is read with the schema that was in force when it was written: the one with
the greatest version at or before the file's instant. Its columns then match those of the query by
id: the same id under another name is a rename, an id the file's schema does not have is missing,
even if a column of that name is in the file.

Guarantees: a table without schema-on-read costs one listing. A history that does not parse is a
`SchemaError` that names the file; a history written by an instant that never completed is ignored.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from lakewright.codec.json_text import json_offset, load_json
from lakewright.errors import NotFoundError, SchemaError
from lakewright.format.evolution import MISSING
from lakewright.format.table_properties import META_FOLDER, TableProperties
from lakewright.format.timeline import Timeline
from lakewright.storage.base import Storage

__all__ = [
    "ColumnMatch",
    "InternalArray",
    "InternalField",
    "InternalMap",
    "InternalRecord",
    "InternalSchema",
    "InternalSchemas",
    "InternalType",
    "load_internal_schemas",
    "match_columns",
    "parse_history",
    "parse_internal_schema",
]

SCHEMA_FOLDER = f"{META_FOLDER}/.schema"
NESTING_MAX = 64
_HISTORY_FILE = re.compile(r"(\d{14,17})(?:_\d{14,17})?\.schemacommit")
_META_PREFIX = "_hoodie_"


@dataclass(frozen=True, slots=True)
class InternalField:
    """One field of a record, known by its id."""

    id: int
    name: str
    optional: bool
    type: InternalType
    doc: str | None = None


@dataclass(frozen=True, slots=True)
class InternalRecord:
    """Fields in order."""

    fields: tuple[InternalField, ...]


@dataclass(frozen=True, slots=True)
class InternalArray:
    """A list; its element has an id of its own."""

    element_id: int
    element: InternalType
    element_optional: bool


@dataclass(frozen=True, slots=True)
class InternalMap:
    """A map; key and value have ids of their own."""

    key_id: int
    key: InternalType
    value_id: int
    value: InternalType
    value_optional: bool


InternalType: TypeAlias = str | InternalRecord | InternalArray | InternalMap
"""Primitives are their stored text: `int`, `decimal(10, 2)`, `fixed[16]`, …"""


@dataclass(frozen=True, slots=True)
class InternalSchema:
    """One version of a table's schema with ids."""

    version_id: int
    max_column_id: int
    record: InternalRecord

    def to_json(self) -> str:
        """The text as Hudi stores it in commits and in the history."""
        tree = {
            "max_column_id": self.max_column_id,
            "version_id": self.version_id,
            **_tree(self.record),
        }
        return json.dumps(tree, separators=(",", ":"), ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class ColumnMatch:
    """Where a column of the query is in a file's schema, by id."""

    column: str
    """Full dotted name in the query; list elements are `element`, map values `value`."""
    source: str | None
    """Name of the field in the file; None: the file has no such column."""
    stored: InternalType | None


@dataclass(frozen=True, slots=True)
class InternalSchemas:
    """The history of a table's schemas, oldest first."""

    versions: tuple[InternalSchema, ...]

    def for_instant(self, requested_time: str) -> InternalSchema | None:
        """The schema in force for what an instant wrote; None before the first version."""
        end = bisect_right(
            self.versions, _as_version(requested_time), key=lambda version: version.version_id
        )
        return self.versions[end - 1] if end else None

    def renames(self, instant: str, *, at: str | None = None) -> Mapping[str, str]:
        """Renames for reading a file of `instant` by the schema as of `at` (None: the newest).

        Keys are full dotted names in the query's schema, values names in the file, or `MISSING`.
        """
        stored = self.for_instant(instant)
        query = self.versions[-1] if at is None else self.for_instant(at)
        if stored is None or query is None or stored is query:
            return {}
        return {
            match.column: MISSING if match.source is None else match.source
            for match in match_columns(stored, query)
            if match.source is None or match.source != match.column.rsplit(".", 1)[-1]
        }


def match_columns(stored: InternalSchema, query: InternalSchema) -> list[ColumnMatch]:
    """Every named column of `query`, at any depth, with its place in `stored`."""
    return list(_matches(stored.record, query.record, ""))


def _matches(stored: InternalType | None, query: InternalType, name: str) -> Iterator[ColumnMatch]:
    if isinstance(query, InternalRecord):
        by_id = {f.id: f for f in stored.fields} if isinstance(stored, InternalRecord) else {}
        for wanted in query.fields:
            full = f"{name}.{wanted.name}" if name else wanted.name
            found = by_id.get(wanted.id)
            if found is None and not name and wanted.name.startswith(_META_PREFIX):
                continue  # meta columns are in every file, whatever the internal schema lists
            yield ColumnMatch(full, found.name if found else None, found.type if found else None)
            if found is not None:
                yield from _matches(found.type, wanted.type, full)
    elif isinstance(query, InternalArray) and isinstance(stored, InternalArray):
        yield from _matches(stored.element, query.element, f"{name}.element")
    elif isinstance(query, InternalMap) and isinstance(stored, InternalMap):
        yield from _matches(stored.value, query.value, f"{name}.value")


def load_internal_schemas(
    storage: Storage, properties: TableProperties, timeline: Timeline
) -> InternalSchemas | None:
    """The schema history of a table; None if it does not use schema-on-read."""
    del properties  # the folder and its names are alike in all versions
    try:
        names = [info.name for info in storage.list(SCHEMA_FOLDER) if not info.is_dir]
    except NotFoundError:
        return None
    found = [(m[1], name) for name in names if (m := _HISTORY_FILE.fullmatch(name))]
    valid = [pair for pair in found if timeline.contains_completed_or_archived(pair[0])]
    if not valid:
        return None
    path = f"{SCHEMA_FOLDER}/{max(valid)[1]}"
    versions = parse_history(storage.read(path), path=path)
    return InternalSchemas(versions) if versions else None


def parse_history(data: bytes, *, path: str) -> tuple[InternalSchema, ...]:
    """The schemas of a history file, oldest first."""
    node = _json(data, path)
    if not isinstance(node, dict) or not isinstance(node.get("schemas"), list):
        raise _broken("it has no list of schemas", path)
    versions = {s.version_id: s for s in (_schema(item, path) for item in node["schemas"])}
    return tuple(versions[version] for version in sorted(versions))


def parse_internal_schema(text: str | bytes, *, path: str = "") -> InternalSchema:
    """One schema, as commits store it under `latest_schema`."""
    return _schema(_json(text, path), path)


def _as_version(requested_time: str) -> int:
    digits = requested_time if requested_time.isascii() and requested_time.isdigit() else "0"
    return int(digits)


def _json(data: str | bytes, path: str) -> Any:
    try:
        return load_json(data)
    except ValueError as error:
        raise _broken(str(error), path, json_offset(error)) from error


def _schema(node: Any, path: str) -> InternalSchema:
    parser = _Parser(path)
    record = parser.type(node, 0)
    if not isinstance(record, InternalRecord):
        raise _broken("the top is not a record", path)
    version = parser.number(node, "version_id", default=0)
    highest = parser.number(node, "max_column_id", default=-1)
    return InternalSchema(version, highest, record)


@dataclass(frozen=True, slots=True)
class _Parser:
    """JSON to types; both spellings of the keys, with `_` and with `-`."""

    path: str

    def type(self, node: Any, depth: int) -> InternalType:
        """One type."""
        if isinstance(node, str):
            return node
        if not isinstance(node, dict) or depth > NESTING_MAX:
            raise _broken("a type is neither text nor an object", self.path)
        match node.get("type"):
            case "record":
                fields = node.get("fields")
                if not isinstance(fields, list):
                    raise _broken("a record has no fields", self.path)
                return InternalRecord(tuple(self._field(f, depth + 1) for f in fields))
            case "array":
                return InternalArray(
                    self.number(node, "element_id"),
                    self.type(node.get("element"), depth + 1),
                    bool(node.get("element_optional", True)),
                )
            case "map":
                return InternalMap(
                    self.number(node, "key_id"),
                    self.type(node.get("key"), depth + 1),
                    self.number(node, "value_id"),
                    self.type(node.get("value"), depth + 1),
                    bool(node.get("value_optional", True)),
                )
            case other:
                raise _broken(f"unknown type {other!r}", self.path)

    def _field(self, node: Any, depth: int) -> InternalField:
        if not isinstance(node, dict) or not isinstance(node.get("name"), str):
            raise _broken("a field has no name", self.path)
        return InternalField(
            id=self.number(node, "id"),
            name=node["name"],
            optional=bool(node.get("optional", True)),
            type=self.type(node.get("type"), depth),
            doc=node.get("doc") if isinstance(node.get("doc"), str) else None,
        )

    def number(self, node: Mapping[str, Any], key: str, default: int | None = None) -> int:
        """A whole number under one of the key's spellings."""
        value = node.get(key, node.get(key.replace("_", "-"), default))
        if not isinstance(value, int) or isinstance(value, bool):
            raise _broken(f"{key} is not a number", self.path)
        return value


def _tree(kind: InternalType) -> Any:
    match kind:
        case InternalRecord(fields):
            return {"type": "record", "fields": [_field_tree(f) for f in fields]}
        case InternalArray(element_id, element, optional):
            return {
                "type": "array",
                "element_id": element_id,
                "element": _tree(element),
                "element_optional": optional,
            }
        case InternalMap(key_id, key, value_id, value, optional):
            return {
                "type": "map",
                "key_id": key_id,
                "key": _tree(key),
                "value_id": value_id,
                "value": _tree(value),
                "value_optional": optional,
            }
        case str():
            return kind


def _field_tree(f: InternalField) -> dict[str, Any]:
    tree = {"id": f.id, "name": f.name, "optional": f.optional, "type": _tree(f.type)}
    return tree if f.doc is None else {**tree, "doc": f.doc}


def _broken(why: str, path: str, offset: int = 0) -> SchemaError:
    return SchemaError(
        f"A schema-on-read schema does not parse: {why}.",
        hint="The file is damaged; restore it, or read as of an instant before the schema change.",
        context={"path": path, "offset": offset} if path else {},
    )
