"""Options of services from pairs under Hudi's names; the defaults are Hudi's.

`table_service_rollback_delay` is accepted as RFC-79 writes it and with the prefix that every other
key has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from typing import Any, Final, TypeVar

from lakewright.errors import OptionError
from lakewright.services.compaction_plan import (
    CompactionOptions,
    CompactionStrategy,
    CompactionTrigger,
)

__all__ = ["ROLLBACK_DELAY_KEYS", "compaction_options", "rollback_delay_ms"]

ROLLBACK_DELAY_KEYS: Final = (
    "table_service_rollback_delay",
    "hoodie.table.services.rollback.delay.mins",
)
Choice = TypeVar("Choice", bound=Enum)

_NUMBERS: Final = {
    "hoodie.compact.inline.max.delta.commits": "commits",
    "hoodie.compact.inline.max.delta.seconds": "seconds",
    "hoodie.compaction.target.io": "target_io_mb",
    "hoodie.compaction.logfile.size.threshold": "log_bytes",
    "hoodie.compaction.logfile.num.threshold": "log_files",
    "hoodie.compaction.daybased.target.partitions": "partitions",
    "hoodie.parquet.max.file.size": "parquet_max_bytes",
}
_TRIGGER: Final = "hoodie.compact.inline.trigger.strategy"
_STRATEGY: Final = "hoodie.compaction.strategy"


def compaction_options(given: Mapping[str, str]) -> CompactionOptions:
    """The options of a compaction; `OptionError` names what cannot be understood."""
    chosen: dict[str, Any] = {
        field: _number(key, given[key]) for key, field in _NUMBERS.items() if key in given
    }
    if _TRIGGER in given:
        chosen["trigger"] = _choice(_TRIGGER, given[_TRIGGER], CompactionTrigger)
    if _STRATEGY in given:
        name = given[_STRATEGY].rpartition(".")[2]
        chosen["strategy"] = _choice(_STRATEGY, name, CompactionStrategy)
    return replace(CompactionOptions(), **chosen)


def rollback_delay_ms(given: Mapping[str, str], default_ms: int) -> int:
    """How old a removable plan must be before cleaning removes it."""
    told = {key: _number(key, given[key]) for key in ROLLBACK_DELAY_KEYS if key in given}
    if len(set(told.values())) > 1:
        raise OptionError(
            f"{' and '.join(told)} contradict each other.",
            hint="Give one of them.",
            context=dict(told),
        )
    return next(iter(told.values())) * 60_000 if told else default_ms


def _number(key: str, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise OptionError(
            f"{key} must be a number that is not negative, not {text!r}.",
            hint="Leave it out to get the default.",
            context={"option": key, "value": text},
        )
    return number


def _choice(key: str, text: str, kind: type[Choice]) -> Choice:
    for member in kind:
        if text in (member.value, member.name):
            return member
    known = ", ".join(str(member.value) for member in kind)
    raise OptionError(
        f"{key} cannot be {text!r}.",
        hint=f"Choose one of {known}.",
        context={"option": key, "value": text},
    )
