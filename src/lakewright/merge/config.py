"""What a table's properties say about merging, as one frozen value.

Tables whose version stores the merge mode are taken at their word; for the others (and for tables
that an early upgrade left without a mode) it is inferred. `semantics` tells whose rules judge the
table: those of the release line that owns its version. A property that this release cannot honour
is refused instead of guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final
from uuid import UUID

import pyarrow as pa

from lakewright.errors import ConfigError, UnsupportedTableError
from lakewright.format import property_keys as keys
from lakewright.format.version import TableVersion
from lakewright.merge import names
from lakewright.merge.deletes import custom_marker
from lakewright.merge.inference import (
    REPLACEMENTS,
    UNAVAILABLE_VALUE,
    MergeBehaviour,
    custom_behaviour,
    infer_behaviour,
)
from lakewright.merge.names import MergeMode, PartialUpdateMode, Semantics, payload_class
from lakewright.merge.protocol import MergeContext, Phase

WRITE_PRECOMBINE_FIELD: Final = "hoodie.datasource.write.precombine.field"
PAYLOAD_ORDERING_FIELD: Final = "hoodie.payload.ordering.field"
UPDATE_ON_SAME_ORDERING: Final = "hoodie.payload.update.on.same.ordering.field"
RECORD_KEY_COLUMN: Final = "_hoodie_record_key"

_ORDERING_KEYS: Final = (
    keys.ORDERING_FIELDS,
    keys.PRECOMBINE_FIELD,
    WRITE_PRECOMBINE_FIELD,
    PAYLOAD_ORDERING_FIELD,
)
_PRE_RELEASE_PARTIAL_MODES: Final = {"IGNORE_MARKERS": PartialUpdateMode.FILL_UNAVAILABLE}


@dataclass(frozen=True, slots=True)
class MergeConfig:
    """How the rows of one table merge."""

    mode: MergeMode
    strategy_id: UUID
    payload_class: str
    ordering_fields: tuple[str, ...]
    """Empty where ordering has no meaning."""
    semantics: Semantics
    partial_update_mode: PartialUpdateMode | None = None
    delete_field: str | None = None
    delete_marker: str | None = None
    unavailable_value: str | None = None
    user_strategy: UUID | None = None
    """A strategy id of the table that no release defines: it names a user's merger."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """The table's properties, merge properties also under their own names."""

    @classmethod
    def from_properties(
        cls,
        version: TableVersion,
        properties: Mapping[str, str],
        *,
        semantics: Semantics | None = None,
    ) -> MergeConfig:
        """Read the configuration of a table; `semantics` overrides whose rules judge it."""
        rules = semantics or Semantics(version.payload_semantics)
        merged = _with_merge_properties(properties)
        ordering = ordering_fields(merged)
        behaviour, declared = _behaviour(version, merged, rules, bool(ordering))
        if rules is Semantics.ONE and behaviour.mode is MergeMode.COMMIT_TIME:
            ordering = ()
        custom = custom_marker(merged)
        replacement = REPLACEMENTS.get(behaviour.payload_class)
        if custom is None and rules is Semantics.ONE and replacement and replacement.delete_mark:
            custom = replacement.delete_mark
        return cls(
            mode=behaviour.mode,
            strategy_id=behaviour.strategy_id,
            payload_class=behaviour.payload_class,
            ordering_fields=ordering,
            semantics=rules,
            partial_update_mode=_partial_update_mode(version, merged),
            delete_field=custom[0] if custom else None,
            delete_marker=custom[1] if custom else None,
            unavailable_value=merged.get(UNAVAILABLE_VALUE),
            user_strategy=declared if declared not in names.BUILT_IN_IDS else None,
            properties=MappingProxyType(merged),
        )

    @property
    def update_on_same_ordering(self) -> bool:
        """Whether a payload class lets the newer row win a tie."""
        text = self.properties.get(UPDATE_ON_SAME_ORDERING, "true")
        return text.strip().lower() == "true"

    def context(
        self,
        schema: pa.Schema,
        phase: Phase,
        *,
        key_column: str = RECORD_KEY_COLUMN,
        defaults: Mapping[str, object] | None = None,
    ) -> MergeContext:
        """The context of merges under this configuration, without rows yet."""
        return MergeContext(
            schema=schema,
            key_column=key_column,
            ordering_columns=self.ordering_fields,
            phase=phase,
            properties=self.properties,
            defaults=defaults or {},
        )


def ordering_fields(properties: Mapping[str, str]) -> tuple[str, ...]:
    """The ordering fields by the first key that is set."""
    for key in _ORDERING_KEYS:
        fields = tuple(part.strip() for part in properties.get(key, "").split(",") if part.strip())
        if fields:
            return fields
    return ()


def _with_merge_properties(properties: Mapping[str, str]) -> dict[str, str]:
    prefix = keys.MERGE_PROPERTY_PREFIX
    stripped = {k[len(prefix) :]: v for k, v in properties.items() if k.startswith(prefix)}
    return {**properties, **stripped}


def _behaviour(
    version: TableVersion,
    properties: Mapping[str, str],
    rules: Semantics,
    has_ordering: bool,
) -> tuple[MergeBehaviour, UUID | None]:
    stored = properties.get(keys.PAYLOAD_CLASS, "").strip()
    payload = payload_class(stored) if stored else None
    declared = _strategy(properties, keys.MERGE_STRATEGY_ID)
    old_declared = _strategy(properties, keys.MERGE_STRATEGY_ID_OLD)
    if not version.merge_mode_stored:
        strategy = declared or old_declared
        absent = names.OVERWRITE_WITH_LATEST if rules is Semantics.ZERO else names.DEFAULT_PAYLOAD
        return infer_behaviour(version, payload=payload or absent, strategy=strategy), strategy
    # An upgrade leaves the old key behind; beside a payload class it says nothing.
    strategy = declared or (old_declared if payload is None else None)
    mode = _mode(properties)
    if mode is MergeMode.CUSTOM:
        return custom_behaviour(version, payload, strategy), strategy
    if mode is not None:
        return infer_behaviour(version, mode=mode), strategy
    return (
        infer_behaviour(version, payload=payload, strategy=strategy, has_ordering=has_ordering),
        strategy,
    )


def _strategy(properties: Mapping[str, str], key: str) -> UUID | None:
    text = properties.get(key, "").strip()
    try:
        return UUID(text) if text else None
    except ValueError as cause:
        raise ConfigError(
            f"{key}={text} is not a strategy id.",
            hint="A merge strategy id is a UUID; correct the table property.",
            context={"property": key, "value": text},
        ) from cause


def _mode(properties: Mapping[str, str]) -> MergeMode | None:
    text = properties.get(keys.MERGE_MODE, "").strip().upper()
    if not text:
        return None
    try:
        return MergeMode(text)
    except ValueError as cause:
        raise _unknown(keys.MERGE_MODE, text, [mode.value for mode in MergeMode]) from cause


def _partial_update_mode(
    version: TableVersion, properties: Mapping[str, str]
) -> PartialUpdateMode | None:
    text = properties.get(keys.PARTIAL_UPDATE_MODE, "").strip().upper()
    if not text or not version.partial_update_modes:
        return None
    if text in _PRE_RELEASE_PARTIAL_MODES:
        return _PRE_RELEASE_PARTIAL_MODES[text]
    try:
        return PartialUpdateMode(text)
    except ValueError as cause:
        known = [mode.value for mode in PartialUpdateMode]
        raise _unknown(keys.PARTIAL_UPDATE_MODE, text, known) from cause


def _unknown(key: str, text: str, known: list[str]) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"{key}={text} is not known.",
        hint=f"Known values: {', '.join(known)}. Correct the property, or read the table with the "
        "release that wrote it.",
        context={"property": key, "value": text},
    )
