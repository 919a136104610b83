"""Avro schemas: JSON text to types and back.

`parse_schema` reads the whole of Avro: primitive, logical and named types, references by name and
namespace, aliases, defaults. A logical type that is not valid where it stands is ignored, as Avro
demands, and stays in `props`. `to_json` writes the compact form with the attribute order that Java
writes, so a schema that Java wrote comes back as the same text.

What can go wrong is always a `SchemaError`: text that is not JSON, an unknown type, a name that is
defined twice, a schema that contains itself, is nested too deeply or unfolds to too many types.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NoReturn, TypeGuard

from lakewright.codec.avro.types import (
    NO_DEFAULT,
    PRIMITIVES,
    Array,
    AvroType,
    Enum,
    Field,
    Fixed,
    Map,
    NoDefault,
    Primitive,
    Record,
    Union,
)
from lakewright.codec.json_text import load_json
from lakewright.errors import SchemaError

__all__ = [
    "NO_DEFAULT",
    "Array",
    "AvroType",
    "Enum",
    "Field",
    "Fixed",
    "Map",
    "NoDefault",
    "Primitive",
    "Record",
    "Union",
    "decimal_precision_max",
    "parse_schema",
    "to_json",
]

TEXT_BYTES_MAX: Final = 16 << 20
DEPTH_MAX: Final = 64
TYPES_MAX: Final = 100_000
FIXED_SIZE_MAX: Final = (1 << 31) - 1
UNION_BRANCHES_MAX: Final = 1 << 8
"""Each branch of a union is a column of its own, with a place for every record."""
_EXACT_BYTES: Final = 256

_LOGICAL: Final = {
    "date": "int",
    "time-millis": "int",
    "time-micros": "long",
    "timestamp-millis": "long",
    "timestamp-micros": "long",
    "timestamp-nanos": "long",
    "local-timestamp-millis": "long",
    "local-timestamp-micros": "long",
    "local-timestamp-nanos": "long",
    "uuid": "string",
    "decimal": "bytes",
}
_CONSUMED: Final = {
    "record": {"type", "name", "namespace", "doc", "fields"},
    "error": {"type", "name", "namespace", "doc", "fields"},
    "enum": {"type", "name", "namespace", "doc", "symbols"},
    "fixed": {"type", "name", "namespace", "size"},
    "array": {"type", "items"},
    "map": {"type", "values"},
}
_FIELD_CONSUMED: Final = {"name", "type", "doc", "default", "aliases"}


def parse_schema(text: str | bytes) -> AvroType:
    """Parse the JSON text of a schema; equal texts give the same object."""
    if len(text) > TEXT_BYTES_MAX:
        _refuse(f"the schema text has {len(text)} bytes, more than {TEXT_BYTES_MAX}")
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            _refuse(f"the schema text is not UTF-8: {error}")
    return _parse_text(text)


@lru_cache(maxsize=128)
def _parse_text(text: str) -> AvroType:
    try:
        node = load_json(text)
    except ValueError as error:
        _refuse(f"the schema text is not JSON: {error}")
    return _Parser().parse(node, namespace="", depth=0)


def decimal_precision_max(size: int) -> int:
    """The most decimal digits that always fit into `size` bytes of two's complement."""
    if size > _EXACT_BYTES:
        return int((8 * size - 1) * math.log10(2))
    return len(str((1 << (8 * size - 1)) - 1)) - 1 if size else 0


def _refuse(message: str) -> NoReturn:
    raise SchemaError(
        f"Not a usable Avro schema: {message}.",
        hint="Check the schema against the writer of the file; lakewright reads Avro 1.12 schemas "
        "that do not contain themselves.",
    )


class _Parser:
    """One pass over the JSON tree; names are resolved in the order of definition."""

    def __init__(self) -> None:
        self._named: dict[str, AvroType | None] = {}  # None: its definition is still open
        self._sizes: dict[str, int] = {}
        self._types = 0

    def parse(self, node: Any, *, namespace: str, depth: int) -> AvroType:
        if depth > DEPTH_MAX:
            _refuse(f"it is nested deeper than {DEPTH_MAX} levels")
        self._count(1)
        if isinstance(node, str):
            return self._reference(node, {}, namespace)
        if isinstance(node, list):
            return self._union(node, namespace, depth)
        if not isinstance(node, dict):
            _refuse(f"a type must be text, a list or an object, not {node!r}"[:200])
        kind = node.get("type")
        if isinstance(kind, (dict, list)):
            return self.parse(kind, namespace=namespace, depth=depth + 1)
        if not isinstance(kind, str):
            _refuse("a type object has no 'type'")
        consumed = _CONSUMED.get(kind, {"type"})
        props = {key: value for key, value in node.items() if key not in consumed}
        if kind in ("record", "error"):
            return self._record(node, props, namespace, depth)
        if kind == "enum":
            return self._enum(node, props, namespace)
        if kind == "fixed":
            return self._fixed(node, props, namespace)
        if kind == "array":
            items = self.parse(node.get("items"), namespace=namespace, depth=depth + 1)
            return Array(items, props)
        if kind == "map":
            values = self.parse(node.get("values"), namespace=namespace, depth=depth + 1)
            return Map(values, props)
        return self._reference(kind, props, namespace)

    def _count(self, types: int) -> None:
        # A named type counts again wherever it is used: decoding walks the unfolded tree.
        self._types += types
        if self._types > TYPES_MAX:
            _refuse(f"it unfolds to more than {TYPES_MAX} types")

    def _reference(self, name: str, props: dict[str, Any], namespace: str) -> AvroType:
        if name in PRIMITIVES:
            logical, precision, scale = _logical(name, props)
            return Primitive(name, logical, precision, scale, props)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        for candidate in (full, name):
            if candidate in self._named:
                known = self._named[candidate]
                if known is None:
                    _refuse(f"'{candidate}' contains itself, which has no columnar form")
                self._count(self._sizes[candidate])
                return known
        _refuse(f"'{name}' is neither an Avro type nor a name that was defined before")

    def _union(self, node: list[Any], namespace: str, depth: int) -> Union:
        if len(node) > UNION_BRANCHES_MAX:
            _refuse(f"a union has {len(node)} branches, more than {UNION_BRANCHES_MAX}")
        branches = tuple(self.parse(b, namespace=namespace, depth=depth + 1) for b in node)
        seen = set()
        for branch in branches:
            if isinstance(branch, Union):
                _refuse("a union directly inside a union")
            key = _branch_key(branch)
            if key in seen:
                _refuse(f"a union has two branches of type '{key}'")
            seen.add(key)
        return Union(branches)

    def _open(self, node: dict[str, Any], namespace: str) -> str:
        full = _full_name(node, namespace)
        if full in PRIMITIVES or full in self._named:
            _refuse(f"the name '{full}' is defined twice")
        self._named[full] = None
        return full

    def _close(self, full: str, schema: AvroType, size: int) -> None:
        self._named[full] = schema
        self._sizes[full] = size

    def _record(
        self, node: dict[str, Any], props: dict[str, Any], namespace: str, depth: int
    ) -> Record:
        full = self._open(node, namespace)
        before = self._types
        entries = node.get("fields")
        if not isinstance(entries, list):
            _refuse(f"record '{full}' has no list of fields")
        inner = full.rpartition(".")[0]
        fields = tuple(self._field(entry, full, inner, depth) for entry in entries)
        names = [f.name for f in fields]
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            _refuse(f"record '{full}' has two fields '{twice}'")
        if node["type"] == "error":
            props = {"type": "error", **props}
        record = Record(full, fields, _text(node, "doc"), props)
        self._close(full, record, self._types - before)
        return record

    def _field(self, entry: Any, record: str, namespace: str, depth: int) -> Field:
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            _refuse(f"record '{record}' has a field without a name")
        if not entry["name"]:
            _refuse(f"record '{record}' has a field with an empty name")
        aliases = entry.get("aliases", ())
        if not isinstance(aliases, (list, tuple)):
            _refuse(f"the aliases of '{record}.{entry['name']}' are not a list")
        return Field(
            entry["name"],
            self.parse(entry.get("type"), namespace=namespace, depth=depth + 1),
            entry.get("default", NO_DEFAULT),
            _text(entry, "doc"),
            tuple(str(alias) for alias in aliases),
            {key: value for key, value in entry.items() if key not in _FIELD_CONSUMED},
        )

    def _enum(self, node: dict[str, Any], props: dict[str, Any], namespace: str) -> Enum:
        full = self._open(node, namespace)
        symbols = node.get("symbols")
        if not isinstance(symbols, list) or not all(isinstance(s, str) for s in symbols):
            _refuse(f"enum '{full}' has no list of symbols")
        if len(set(symbols)) != len(symbols):
            _refuse(f"enum '{full}' has a symbol twice")
        result = Enum(full, tuple(symbols), _text(node, "doc"), props)
        self._close(full, result, 0)
        return result

    def _fixed(self, node: dict[str, Any], props: dict[str, Any], namespace: str) -> Fixed:
        full = self._open(node, namespace)
        size = node.get("size")
        if not _is_int(size) or not 0 <= size <= FIXED_SIZE_MAX:
            _refuse(f"fixed '{full}' has the size {size!r}")
        logical, precision, scale = _logical("fixed", props, size)
        result = Fixed(full, size, logical, precision, scale, props)
        self._close(full, result, 0)
        return result


def _full_name(node: dict[str, Any], namespace: str) -> str:
    name = node.get("name")
    if not isinstance(name, str) or not name:
        _refuse("a named type has no name")
    if "." in name:
        return name
    own = node.get("namespace", namespace)
    if not isinstance(own, str):
        _refuse(f"the namespace of '{name}' is not text")
    return f"{own}.{name}" if own else name


def _text(node: Mapping[str, Any], key: str) -> str | None:
    value = node.get(key)
    return value if isinstance(value, str) else None


def _is_int(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _branch_key(branch: AvroType) -> str:
    if isinstance(branch, Primitive):
        return branch.kind
    if isinstance(branch, (Record, Enum, Fixed)):
        return branch.name
    return type(branch).__name__.lower()


def _logical(
    kind: str, props: Mapping[str, Any], size: int = 0
) -> tuple[str | None, int | None, int | None]:
    """The logical type that is valid on `kind`, with precision and scale of a decimal."""
    name = props.get("logicalType")
    if name == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = props.get("precision"), props.get("scale", 0)
        if not _is_int(precision) or not _is_int(scale):
            return None, None, None
        fits = kind == "bytes" or precision <= decimal_precision_max(size)
        if precision < 1 or not 0 <= scale <= precision or not fits:
            return None, None, None
        return "decimal", precision, scale
    if kind == "fixed":
        return (name if (name, size) in (("uuid", 16), ("duration", 12)) else None), None, None
    if isinstance(name, str) and _LOGICAL.get(name) == kind and name != "decimal":
        return name, None, None
    return None, None, None


def to_json(schema: AvroType) -> str:
    """The compact JSON text; a named type is spelled out where it is met first."""
    return json.dumps(_tree(schema, "", set()), separators=(",", ":"), ensure_ascii=False)


def _tree(schema: AvroType, namespace: str, known: set[str]) -> Any:
    match schema:
        case Primitive():
            props = _typed_props(schema)
            return {"type": schema.kind, **props} if props else schema.kind
        case Union(branches=branches):
            return [_tree(branch, namespace, known) for branch in branches]
        case Array(items=items):
            return {"type": "array", "items": _tree(items, namespace, known), **schema.props}
        case Map(values=values):
            return {"type": "map", "values": _tree(values, namespace, known), **schema.props}
        case Record() | Enum() | Fixed():
            return _named_tree(schema, namespace, known)


def _named_tree(schema: Record | Enum | Fixed, namespace: str, known: set[str]) -> Any:
    own, _, name = schema.name.rpartition(".")
    if schema.name in known:
        return name if own == namespace else schema.name
    known.add(schema.name)
    head: dict[str, Any] = {"type": type(schema).__name__.lower(), "name": name}
    if own != namespace:
        head["namespace"] = own
    if isinstance(schema, Fixed):
        return {**head, "size": schema.size, **_typed_props(schema)}
    if schema.doc is not None:
        head["doc"] = schema.doc
    if isinstance(schema, Enum):
        return {**head, "symbols": list(schema.symbols), **schema.props}
    fields = [_field_tree(entry, own, known) for entry in schema.fields]
    return {**head, "fields": fields, **schema.props}


def _field_tree(entry: Field, namespace: str, known: set[str]) -> dict[str, Any]:
    tree: dict[str, Any] = {"name": entry.name, "type": _tree(entry.type, namespace, known)}
    if entry.doc is not None:
        tree["doc"] = entry.doc
    if entry.default is not NO_DEFAULT:
        tree["default"] = entry.default
    if entry.aliases:
        tree["aliases"] = list(entry.aliases)
    return {**tree, **entry.props}


def _typed_props(schema: Primitive | Fixed) -> dict[str, Any]:
    typed: dict[str, Any] = {}
    if schema.logical is not None:
        typed["logicalType"] = schema.logical
    if schema.logical == "decimal":
        typed |= {"precision": schema.precision, "scale": schema.scale}
    if schema.props.keys() >= {"logicalType"}:
        return dict(schema.props)
    return {**typed, **schema.props}
