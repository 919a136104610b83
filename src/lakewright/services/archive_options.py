"""How long instants stay on the active timeline: numbers by Hudi's names and defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from lakewright.errors import OptionError
from lakewright.format.history_writing import HistoryPolicy
from lakewright.services.clean_options import CleanOptions

__all__ = ["ArchiveOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    """What stays, and when archiving is worth while."""

    keep_min_commits: int = 20
    """So many completed commits stay, or more if cleaning needs them."""
    keep_max_commits: int = 30
    """Archiving begins when there are more than these."""
    beyond_savepoint: bool = False
    """Commits behind a savepoint are archived too, and only savepointed ones stay."""
    block_on_latest_clean: bool = False
    """Nothing is archived that the last clean said to retain."""
    compaction_delta_commits: int = 5
    """A compaction is due after so many delta commits: those that are counted must stay."""
    clean: CleanOptions = field(default_factory=CleanOptions)
    """What cleaning retains must not be archived before."""
    history: HistoryPolicy = field(default_factory=HistoryPolicy)
    batch_bytes: int = 16 << 20
    """Instants are archived in batches of about so many bytes; a batch is held in memory."""
    batch_instants: int = 1000
    not_from: str | None = None
    """Nothing is archived that was requested at this time or later: what a metadata table knows of
    the active instants of its table."""

    def __post_init__(self) -> None:
        for name in ("keep_min_commits", "compaction_delta_commits", "batch_bytes"):
            _at_least(name, getattr(self, name), 1)
        _at_least("batch_instants", self.batch_instants, 1)
        _at_least("history.join_files", self.history.join_files, 2)
        _at_least("history.manifests_kept", self.history.manifests_kept, 1)
        if self.keep_max_commits <= self.keep_min_commits:
            raise OptionError(
                f"keep_max_commits = {self.keep_max_commits} is not greater than keep_min_commits "
                f"= {self.keep_min_commits}.",
                hint="Archiving begins above the maximum and stops at the minimum: give a greater "
                "hoodie.keep.max.commits or a smaller hoodie.keep.min.commits.",
                context={"option": "keep_max_commits", "value": self.keep_max_commits},
            )

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """The options that Hudi's names say; names of other things are left alone."""
        chosen = _chosen(options, _HUDI)
        history = HistoryPolicy(**_chosen(options, _HUDI_HISTORY))
        return cls(**chosen, clean=CleanOptions.of(options), history=history)


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise OptionError(
            f"Archiving cannot work with {name} = {value}.",
            hint=f"Use at least {least} for {name}.",
            context={"option": name, "value": value},
        )


def _truth(text: str) -> bool:
    return {"true": True, "false": False}[text.strip().lower()]


_Known = Mapping[str, tuple[str, Callable[[str], Any]]]
_HUDI: _Known = {
    "keep_min_commits": ("hoodie.keep.min.commits", int),
    "keep_max_commits": ("hoodie.keep.max.commits", int),
    "beyond_savepoint": ("hoodie.archive.beyond.savepoint", _truth),
    "block_on_latest_clean": ("hoodie.archive.block.on.latest.clean.ectr", _truth),
    "compaction_delta_commits": ("hoodie.compact.inline.max.delta.commits", int),
}
_HUDI_HISTORY: _Known = {
    "join_files": ("hoodie.timeline.compaction.batch.size", int),
    "join_bytes": ("hoodie.timeline.compaction.target.file.max.bytes", int),
    "manifests_kept": ("hoodie.timeline.manifest.retained.versions", int),
}


def _chosen(options: Mapping[str, str], known: _Known) -> dict[str, Any]:
    chosen = {}
    for name, (hudi, read) in known.items():
        if hudi not in options:
            continue
        try:
            chosen[name] = read(options[hudi])
        except (ValueError, KeyError) as error:
            raise OptionError(
                f"The option {hudi} has the value {options[hudi]!r}, which it cannot have.",
                hint="See the table of options in docs/services.md.",
                context={"option": hudi, "value": options[hudi]},
            ) from error
    return chosen
