"""The corpus: which tables are made, by which Hudi, with which traits.

Two parts. The pairwise part covers every allowed pair of the axes below with few tables; the named
part has what only makes sense in one place (payload classes, partial updates, …). `corpus()` is
deterministic; names are unique and stable as long as the axes are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from interop.cases import DIALECT_OF_TABLE_VERSION, Case, TableType, Traits
from interop.histories import HISTORIES, Maker
from interop.options import write_options
from interop.pairwise import cover
from interop.special_cases import special_cases

AXES: dict[str, tuple[str, ...]] = {
    "table_version": ("6", "8", "9"),
    "type": ("mor", "cow"),
    "history": tuple(HISTORIES),
    "keys": ("simple", "complex", "nonpartitioned", "timestamp", "custom"),
    "paths": ("plain", "hive", "encoded", "hive_encoded"),
    "blocks": ("avro", "parquet"),
    "merge": ("event", "commit"),
    "index": ("bloom", "bucket", "record"),
    "metadata": ("off", "files", "stats"),
    "columns": ("plain", "flat", "nested"),
    "first": ("insert", "bulk_insert", "upsert"),
}


def allowed(c: Mapping[str, str]) -> bool:
    """Whether a combination makes sense and real Hudi can make it."""
    return not any(senseless(c) for senseless in SENSELESS)


SENSELESS: tuple[Callable[[Mapping[str, str]], bool], ...] = (
    lambda c: c["type"] == "cow" and c["blocks"] != "avro",
    lambda c: c["type"] == "cow" and c["history"] in ("compaction", "pending_compaction"),
    lambda c: c["keys"] == "nonpartitioned" and c["paths"] != "plain",
    lambda c: c["index"] == "record" and c["metadata"] == "off",
    lambda c: c["index"] == "bucket" and c["first"] == "bulk_insert",
    lambda c: c["index"] == "bucket" and c["history"] in ("clustering", "updates"),
    lambda c: c["history"] == "statements" and (c["columns"], c["keys"]) != ("plain", "simple"),
    # Hudi 1.0: statistics of null logical types end in a null pointer
    lambda c: c["metadata"] == "stats" and c["columns"] != "plain",
    # Hudi 0.15 cannot read a promoted column out of a Parquet log block
    lambda c: (
        c["history"] == "schema_change" and c["blocks"] == "parquet" and c["table_version"] == "6"
    ),
    # Hudi 0.15 cannot write decimals again that clustering has rewritten
    lambda c: (c["table_version"], c["history"]) == ("6", "clustering") and c["columns"] != "plain",
    # Hudi 1.0 cannot keep a record index over logs of two schemas
    lambda c: c["history"] == "schema_change" and c["index"] == "record" and c["type"] == "mor",
)


def cost(c: Mapping[str, str]) -> float:
    """How slow a table is to make: a metadata table doubles each write, statistics more."""
    return {"off": 0.0, "files": 0.5, "stats": 0.9}[c["metadata"]]


def pairwise_cases() -> list[Case]:
    """The covering part."""
    cases = []
    for chosen in cover(AXES, allowed, cost):
        version = int(chosen["table_version"])
        traits = Traits(
            table_version=version,
            type=cast("TableType", chosen["type"]),
            **{k: v for k, v in chosen.items() if k not in ("table_version", "type")},
        )
        cases.append(make(traits))
    return cases


def make(traits: Traits, hudi: str | None = None, suffix: str = "") -> Case:
    """The case of some traits with the history they name."""
    hudi = hudi or DIALECT_OF_TABLE_VERSION[traits.table_version]
    name = f"v{traits.table_version}_{traits.type}_{traits.history}_{traits.keys}{suffix}"
    maker = Maker(traits, write_options(traits, hudi, name))
    return Case(name, hudi, traits, tuple(HISTORIES[traits.history](maker)))


def corpus() -> list[Case]:
    """Every case, names unique."""
    cases = [*pairwise_cases(), *special_cases()]
    seen: dict[str, int] = {}
    unique = []
    for case in cases:
        count = seen[case.name] = seen.get(case.name, 0) + 1
        if count > 1:
            case = make(case.traits, case.hudi, suffix=f"_{count}")  # only pairwise names repeat
        unique.append(case)
    return unique
