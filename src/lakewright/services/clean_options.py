"""How much history a clean keeps: the policy and its numbers, by Hudi's names and defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Self

from lakewright.errors import OptionError

__all__ = ["CleanOptions", "CleanPolicy"]


class CleanPolicy(Enum):
    """By what a clean decides which file slices are old."""

    KEEP_LATEST_COMMITS = "KEEP_LATEST_COMMITS"
    """Every state of the table of the last commits stays readable."""
    KEEP_LATEST_BY_HOURS = "KEEP_LATEST_BY_HOURS"
    """Every state of the table of the last hours stays readable."""
    KEEP_LATEST_FILE_VERSIONS = "KEEP_LATEST_FILE_VERSIONS"
    """Every file group keeps its last slices; only the newest state is sure to stay readable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanOptions:
    """What to keep, and when cleaning is worth while."""

    policy: CleanPolicy = CleanPolicy.KEEP_LATEST_COMMITS
    commits_retained: int = 10
    hours_retained: int = 24
    file_versions_retained: int = 3
    max_commits_to_clean: int | None = None
    """By how many commits one clean may go beyond the previous one; None is without limit."""
    incremental: bool = True
    """Only partitions that were written since the previous clean are looked at."""
    trigger_commits: int = 1
    """How many commits must have come since the previous clean."""
    allow_multiple: bool = False
    """A clean is planned although another one is pending."""
    drop_metadata_table: bool = False
    """The table loses its metadata table instead of being refused."""

    def __post_init__(self) -> None:
        for name in ("commits_retained", "hours_retained", "file_versions_retained"):
            self._at_least_one(name, getattr(self, name))
        self._at_least_one("trigger_commits", self.trigger_commits)
        if self.max_commits_to_clean is not None:
            self._at_least_one("max_commits_to_clean", self.max_commits_to_clean)

    @staticmethod
    def _at_least_one(name: str, value: int) -> None:
        if value < 1:
            raise OptionError(
                f"A clean cannot work with {name} = {value}.",
                hint=f"Use at least 1 for {name}.",
                context={"option": name, "value": value},
            )

    @property
    def by_versions(self) -> bool:
        """Whether slices are counted, and no moment is retained."""
        return self.policy is CleanPolicy.KEEP_LATEST_FILE_VERSIONS

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """The options that Hudi's names say; names of other things are left alone."""
        chosen: dict[str, Any] = {}
        for field, (names, read) in _HUDI.items():
            for name in names:
                if name in options:
                    chosen[field] = _value(name, options[name], read)
                    break
        return cls(**chosen)


def _truth(text: str) -> bool:
    return {"true": True, "false": False}[text.strip().lower()]


def _limit(text: str) -> int | None:
    return None if int(text) >= _NO_LIMIT else int(text)


def _value(name: str, text: str, read: Callable[[str], Any]) -> Any:
    try:
        return read(text)
    except (ValueError, KeyError) as error:
        raise OptionError(
            f"The option {name} has the value {text!r}, which it cannot have.",
            hint="See the table of options in docs/services.md.",
            context={"option": name, "value": text},
        ) from error


_NO_LIMIT = (1 << 63) - 1
_HUDI: Mapping[str, tuple[tuple[str, ...], Callable[[str], Any]]] = {
    "policy": (("hoodie.clean.policy", "hoodie.cleaner.policy"), CleanPolicy),
    "commits_retained": (
        ("hoodie.clean.commits.retained", "hoodie.cleaner.commits.retained"),
        int,
    ),
    "hours_retained": (("hoodie.clean.hours.retained", "hoodie.cleaner.hours.retained"), int),
    "file_versions_retained": (
        ("hoodie.clean.fileversions.retained", "hoodie.cleaner.fileversions.retained"),
        int,
    ),
    "max_commits_to_clean": (("hoodie.clean.max.commits.to.clean",), _limit),
    "incremental": (
        ("hoodie.clean.incremental.enabled", "hoodie.cleaner.incremental.mode"),
        _truth,
    ),
    "trigger_commits": (("hoodie.clean.trigger.max.commits", "hoodie.clean.max.commits"), int),
    "allow_multiple": (("hoodie.clean.multiple.enabled", "hoodie.clean.allow.multiple"), _truth),
}
