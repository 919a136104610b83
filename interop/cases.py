"""What a case of the corpus is: one table, made by one Hudi in declared steps, and its traits.

Pure values; nothing here touches a disk or a JVM. Steps of the kinds `Write`, `Sql` and `Call` are
run by Hudi; the others (`Crash`, `RollBackLast`, `Savepoint`, `Restore`) are resolved by
`interop.generate`, which knows the instants of the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Row = Mapping[str, Any]
Options = Mapping[str, str]
TableType = Literal["cow", "mor"]

DIALECT_OF_TABLE_VERSION = {6: "0.15.0", 8: "1.0.2", 9: "1.2.0"}


@dataclass(frozen=True)
class Write:
    """A DataFrame write of rows with an operation of Hudi's; `schema` is Spark DDL."""

    operation: str
    schema: str
    rows: tuple[Row, ...]
    options: Options
    mode: str = "append"


@dataclass(frozen=True)
class Sql:
    """A statement; `{table}` and `{path}` are filled in, `source` becomes a view of that name."""

    text: str
    source: tuple[str, tuple[Row, ...]] | None = None
    settings: Options = field(default_factory=dict)
    register: bool = True


@dataclass(frozen=True)
class Call:
    """A stored procedure of Hudi's, given the table by path or by name."""

    procedure: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    by: Literal["path", "table"] = "path"


@dataclass(frozen=True)
class Crash:
    """A write whose writer dies: before its commit (`inflight`) or before its first file."""

    write: Write
    state: Literal["inflight", "requested"] = "inflight"


@dataclass(frozen=True)
class RollBackLast:
    """Roll back the newest completed write."""


@dataclass(frozen=True)
class Savepoint:
    """Savepoint the newest completed write."""


@dataclass(frozen=True)
class Restore:
    """Restore the table to its newest savepoint."""


@dataclass(frozen=True)
class Continue:
    """Go on with another version of Hudi."""

    hudi: str


Step = Write | Sql | Call | Crash | RollBackLast | Savepoint | Restore | Continue


@dataclass(frozen=True)
class Traits:
    """What a table has; the axes of coverage and of the compatibility matrix."""

    table_version: int
    type: TableType
    history: str
    keys: str = "simple"
    paths: str = "plain"
    blocks: str = "avro"
    merge: str = "event"
    index: str = "bloom"
    metadata: str = "off"
    columns: str = "plain"
    first: str = "insert"


@dataclass(frozen=True)
class Case:
    """One table of the corpus."""

    name: str
    hudi: str
    traits: Traits
    steps: tuple[Step, ...]
    read_options: Options = field(default_factory=dict)
    note: str = ""
