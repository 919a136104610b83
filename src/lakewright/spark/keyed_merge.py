"""Merging a DataFrame into a table: clauses that say what becomes of rows that meet, or do not.

A source row meets the table's rows with the same key, or those for which `on` holds. The clauses
are looked at in their order; the first one that is for this case and whose condition is true acts,
and where none does, nothing happens. Everything is evaluated in the JVM, over the aliases `target`
and `source`; its result are rows to write and rows to delete, which go the way of every keyed write
as one commit. Updated rows meet stored ones by the table's own rule of merging: where it compares
ordering values, an update must not lower them.

Expressions are DataFrame columns, or SQL text. Key and partition columns of rows that are there do
not change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Final, Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - how Spark's users write it

from lakewright.engine.keyed.deletes import key_columns
from lakewright.engine.write_job import WriteJob
from lakewright.errors import InputError
from lakewright.format.table_schema import META_COLUMNS
from lakewright.spark.filters import column_of
from lakewright.spark.keyed_writer import DELETES, SOURCE

__all__ = [
    "Clause",
    "Expression",
    "merged",
    "when_matched_delete",
    "when_matched_update",
    "when_not_matched_insert",
]

Expression = Column | str
"""A DataFrame column, or SQL text."""
TARGET, ORIGIN = "target", "source"
BROADCAST_ROWS = 1_000_000
"""Sources of so many rows are sent to wherever the table is read."""
ALL: Final = "all"
_THERE, _ACTION = "_lakewright_there", "_lakewright_action"


@dataclass(frozen=True, slots=True)
class Clause:
    """What becomes of some of the rows."""

    kind: Literal["update", "delete", "insert"]
    values: Mapping[str, Expression] | None = None
    """New values by column; None is every column that the source has."""
    where: Expression | None = None

    @property
    def matched(self) -> bool:
        """Whether it is about rows that the table has."""
        return self.kind != "insert"


def when_matched_update(
    values: Mapping[str, Expression] | Literal["all"] = ALL, *, where: Expression | None = None
) -> Clause:
    """Change rows that are there: some columns, or all that the source has.

    >>> when_matched_update({"n": "target.n + source.n"}, where="source.ts > target.ts").kind
    'update'
    """
    return Clause("update", None if values == ALL else dict(values), where)


def when_matched_delete(*, where: Expression | None = None) -> Clause:
    """Delete rows that are there."""
    return Clause("delete", None, where)


def when_not_matched_insert(
    values: Mapping[str, Expression] | Literal["all"] = ALL, *, where: Expression | None = None
) -> Clause:
    """Insert source rows that meet no row; columns that get no value are null."""
    return Clause("insert", None if values == ALL else dict(values), where)


def merged(
    job: WriteJob,
    target: DataFrame,
    source: DataFrame,
    on: Sequence[str] | Expression | None,
    clauses: Sequence[Clause],
    *,
    source_rows: int,
) -> DataFrame:
    """What a merge makes of the source: the table's columns, `DELETES` and `SOURCE`.

    `source` has the column `SOURCE` and gives the same rows again; `target` are all rows of the
    table. `InputError` for clauses that cannot be.
    """
    columns = [name for name in target.columns if name not in META_COLUMNS]
    _check(clauses, columns, key_columns(job))
    there = target.withColumn(_THERE, F.lit(True)).alias(TARGET)
    given = source.alias(ORIGIN)
    meets = _condition(on, job, source.columns)
    small = F.broadcast(given) if source_rows <= BROADCAST_ROWS else given
    met = there.join(small, meets, "left_semi").alias(TARGET)
    joined = given.join(met, meets, "left")
    matched = F.col(f"{TARGET}.{_THERE}").isNotNull()
    action = _first(
        [(matched if clause.matched else ~matched) & _holds(clause.where) for clause in clauses]
    )
    values = _Values(source.columns, frozenset(key_columns(job)))
    made = [values.of(name, clauses).alias(name) for name in columns]
    deletes = [k for k, clause in enumerate(clauses) if clause.kind == "delete"]
    marks = [F.col(_ACTION).isin(deletes).alias(DELETES), column_of(ORIGIN, SOURCE).alias(SOURCE)]
    acting = joined.withColumn(_ACTION, action).where(F.col(_ACTION).isNotNull())
    return acting.select(*made, *marks)


@dataclass(frozen=True, slots=True)
class _Values:
    """The values of columns after a merge."""

    given: Sequence[str]
    """Columns of the source."""
    fixed: frozenset[str]
    """Columns that no update changes."""

    def of(self, name: str, clauses: Sequence[Clause]) -> Column:
        """The value of a column, whatever clause acts."""
        cases = [self._by(name, clause) for clause in clauses]
        chosen = F.when(F.col(_ACTION) == 0, cases[0])
        for number, case in enumerate(cases[1:], start=1):
            chosen = chosen.when(F.col(_ACTION) == number, case)
        return chosen

    def _by(self, name: str, clause: Clause) -> Column:
        stored = column_of(TARGET, name)
        if clause.kind == "delete":
            return stored
        otherwise = stored if clause.kind == "update" else F.lit(None)
        if clause.values is not None:
            return _expression(clause.values[name]) if name in clause.values else otherwise
        if clause.kind == "update" and name in self.fixed:
            return stored
        same = {column.lower(): column for column in self.given}.get(name.lower())
        return otherwise if same is None else column_of(ORIGIN, same)


def _check(clauses: Sequence[Clause], columns: Sequence[str], keys: Sequence[str]) -> None:
    if not clauses:
        raise InputError(
            "A merge without clauses does nothing.",
            hint="Give when_matched_update(), when_matched_delete() or when_not_matched_insert().",
        )
    for clause in clauses:
        for name in clause.values or ():
            if name not in columns:
                raise InputError(
                    f"The table has no column {name}.",
                    hint="Name the table's columns; their values are expressions over target and "
                    "source.",
                    context={"column": name, "columns": list(columns)},
                )
            if clause.kind == "update" and name in keys:
                raise InputError(
                    f"An update cannot change {name}, which tells where the row is.",
                    hint="Delete the row and insert another one.",
                    context={"column": name},
                )


def _condition(
    on: Sequence[str] | Expression | None, job: WriteJob, given: Sequence[str]
) -> Column:
    """When a source row meets a row of the table."""
    if isinstance(on, Column) or (isinstance(on, str) and on not in given):
        return _expression(on)
    names = [on] if isinstance(on, str) else on
    if names is None:
        tops = [name.partition(".")[0] for name in job.keys.record_key_fields]
        partition = [name for name in key_columns(job) if name in given]
        names = list(dict.fromkeys([*tops, *partition]))
    lacking = [name for name in names if name not in given]
    if lacking or not names:
        raise InputError(
            f"The source lacks {', '.join(lacking) or 'a key'}, by which its rows meet those of "
            "the table.",
            hint="Add the columns, or tell in on= how rows meet.",
            context={"lacking": lacking, "source": list(given)},
        )
    return reduce(and_, [column_of(TARGET, name) == column_of(ORIGIN, name) for name in names])


def _first(cases: Sequence[Column]) -> Column:
    """The number of the first case that holds; null where none does."""
    chosen = F.when(cases[0], F.lit(0))
    for number, case in enumerate(cases[1:], start=1):
        chosen = chosen.when(case, F.lit(number))
    return chosen


def _holds(where: Expression | None) -> Column:
    return F.lit(True) if where is None else F.coalesce(_expression(where), F.lit(False))


def _expression(given: Expression) -> Column:
    return F.expr(given) if isinstance(given, str) else given
