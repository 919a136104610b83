"""What `spark.read.format("lakewright")` was asked for: options as text, checked and typed.

Options: `path`; `columns` (names with commas, or a JSON list), `where`, `as_of`, `mode` and `meta`
as in `Table.scan`; `changes` (`rows` or `cdc`), `since`, `until` and `images` as in
`Table.changes`, which is then what is read; `mergers` (importable `module:attribute`, with commas);
everything of `ReadOptions` by name; what `StorageOptions` has by name after `storage.`. Streams
take `max_instants_per_batch`, `max_bytes_per_batch` and `missing_history` (`fail` or `latest`) as
well. Names are not case-sensitive.

An unknown name is an `OptionError` with the nearest known one, because a misspelled filter would
silently read everything.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeVar

from pydantic import TypeAdapter, ValidationError

from lakewright.engine.cdc_reader import IMAGES, Images
from lakewright.engine.change_offset import ChangeOffset
from lakewright.engine.changes import CHANGE_MODES, ChangeMode, Changes
from lakewright.engine.options import ReadOptions
from lakewright.engine.scan import MODES, Mode, Scan
from lakewright.errors import OptionError
from lakewright.merge.user import MergerRef
from lakewright.storage.options import StorageOptions
from lakewright.storage.resolve import StorageRef
from lakewright.table import Table

__all__ = ["ReadRequest"]

Word = TypeVar("Word", bound=str)

MissingHistory = Literal["fail", "latest"]
MISSING_HISTORY: tuple[MissingHistory, ...] = ("fail", "latest")
STORAGE = "storage."
ALIASES = {"as.of.instant": "as_of", "hoodie.datasource.query.type": "mode"}
"""Hudi's own names for the same things."""
_LIMITS = ("max_instants_per_batch", "max_bytes_per_batch")
_STORAGE_TEXT = {"provider", "region", "endpoint", "account"}
_STORAGE_SWITCHES = {"allow_http", "anonymous", "virtual_hosted"}
_SCAN = ("path", "columns", "where", "as_of", "mode", "meta", "mergers")
_CHANGES = ("changes", "since", "until", "images", *_LIMITS, "missing_history")
_READ = tuple(ReadOptions.model_fields)
_STORAGE = tuple(
    f"{STORAGE}{f.name}" for f in fields(StorageOptions) if f.name not in ("retry", "timeout_s")
)


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A checked request. It names things and holds nothing open, so it can be pickled."""

    storage: StorageRef
    columns: tuple[str, ...] | None
    where: str | None
    as_of: str | None
    mode: Mode
    meta: bool
    changes: ChangeMode | None
    """What kind of changes are read; None where a snapshot is."""
    since: str | None
    until: str | None
    images: Images
    max_instants: int | None
    max_bytes: int | None
    missing_history: MissingHistory
    """What a stream does where changes it has not read were archived or cleaned."""
    options: ReadOptions
    mergers: tuple[str, ...]

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadRequest:
        """Check options."""
        given = _known(options)
        if "path" not in given:
            raise OptionError(
                "The format lakewright needs the table's path.",
                hint="Write .load(\"/data/trips\") or OPTIONS (path '/data/trips').",
            )
        return cls(
            storage=StorageRef(given["path"], options=_storage(given)),
            columns=_names(given.get("columns")),
            where=given.get("where"),
            as_of=given.get("as_of"),
            mode=_choice("mode", given.get("mode", "snapshot"), MODES),
            meta=_switch("meta", given.get("meta", "true")),
            changes=_choice("changes", given["changes"], CHANGE_MODES)
            if "changes" in given
            else None,
            since=given.get("since"),
            until=given.get("until"),
            images=_choice("images", given.get("images", "json"), IMAGES),
            max_instants=_count("max_instants_per_batch", given),
            max_bytes=_count("max_bytes_per_batch", given),
            missing_history=_choice(
                "missing_history", given.get("missing_history", "fail"), MISSING_HISTORY
            ),
            options=_read_options({k: v for k, v in given.items() if k in _READ}),
            mergers=_names(given.get("mergers")) or (),
        )

    def table(self) -> Table:
        """The table, opened."""
        mergers = [MergerRef(path=path).load() for path in self.mergers]
        return Table.open(
            self.storage.uri,
            storage=self.storage.options,
            options=self.options,
            mergers=mergers,
        )

    def scan(self, table: Table, columns: Sequence[str] | None) -> Scan:
        """The snapshot that is asked for."""
        return table.scan(
            columns=columns, where=self.where, as_of=self.as_of, mode=self.mode, meta=self.meta
        )

    def changes_of(
        self,
        table: Table,
        columns: Sequence[str] | None,
        since: ChangeOffset | str | None,
        until: ChangeOffset | str | None,
    ) -> Changes:
        """The changes of a range."""
        if columns is None and not self.meta and self.changes != "cdc":
            columns = table.snapshot().schema.project(None, meta=False)
        return table.changes(
            since,
            until,
            self.changes or "rows",
            columns=columns,
            where=self.where,
            images=self.images,
        )


def _known(options: Mapping[str, str]) -> dict[str, str]:
    names = (*_SCAN, *_CHANGES, *_READ, *_STORAGE)
    given: dict[str, str] = {}
    for key, value in options.items():
        name = ALIASES.get(key.lower(), key.lower())
        if name not in names:
            near = difflib.get_close_matches(name, [*names, *ALIASES], n=1, cutoff=0.5)
            hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(names)}."
            raise OptionError(
                f"The format lakewright has no option {key!r}.", hint=hint, context={"option": key}
            )
        given[name] = value
    return given


def _names(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    if text.lstrip().startswith("["):
        try:
            return tuple(TypeAdapter(list[str]).validate_python(json.loads(text)))
        except (ValueError, ValidationError) as error:
            raise OptionError(
                f"{text!r} is not a JSON list of names.", hint='Write ["id", "ts"] or id,ts.'
            ) from error
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _choice(name: str, text: str, known: Sequence[Word]) -> Word:
    for word in known:
        if text.lower() == word:
            return word
    raise OptionError(f"Option {name} is {text!r}.", hint=f"Use one of: {', '.join(known)}.")


def _count(name: str, given: Mapping[str, str]) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise OptionError(f"Option {name} is {text!r}.", hint="Write a whole number above 0.")
    return int(text)


def _switch(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise OptionError(f"Option {name} is {text!r}.", hint="Write true or false.")
    return text.lower() == "true"


def _storage(given: Mapping[str, str]) -> StorageOptions:
    chosen: dict[str, Any] = {}
    for name in _STORAGE_TEXT:
        if f"{STORAGE}{name}" in given:
            chosen[name] = given[f"{STORAGE}{name}"]
    for name in _STORAGE_SWITCHES:
        if f"{STORAGE}{name}" in given:
            chosen[name] = _switch(f"{STORAGE}{name}", given[f"{STORAGE}{name}"])
    return StorageOptions(**chosen)


def _read_options(given: Mapping[str, str]) -> ReadOptions:
    try:
        return ReadOptions.model_validate(dict(given))
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        raise OptionError(
            f"Option {name} is {given.get(name)!r}: {first['msg']}.", hint="Correct its value."
        ) from error
