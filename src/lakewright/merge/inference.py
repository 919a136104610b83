"""How merge mode, payload class and strategy id follow from each other.

`infer_behaviour` fills in what is not given and refuses what contradicts itself, as Hudi does when
a table is created or written, and when a table without a stored merge mode is read.
`behaviour_properties` says which of the three a table of a given version stores. Versions differ in
one point: where the mode is stored, a strategy id decides and must agree with the payload class;
where it is not, the payload class decides and the id is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from lakewright.errors import ConfigError
from lakewright.format import property_keys as keys
from lakewright.format.version import TableVersion
from lakewright.merge import names
from lakewright.merge.deletes import DELETE_FIELD, DELETE_MARKER
from lakewright.merge.names import MergeMode, PartialUpdateMode, payload_class

UNAVAILABLE_VALUE: Final = "hoodie.write.partial.update.unavailable.value"

_MODE_OF_PAYLOAD: Final = {
    names.DEFAULT_PAYLOAD: MergeMode.EVENT_TIME,
    names.EVENT_TIME_PAYLOAD: MergeMode.EVENT_TIME,
    names.OVERWRITE_WITH_LATEST: MergeMode.COMMIT_TIME,
}
_MODE_OF_ID: Final = {
    names.EVENT_TIME_ID: MergeMode.EVENT_TIME,
    names.COMMIT_TIME_ID: MergeMode.COMMIT_TIME,
}
_ID_OF_MODE: Final = {mode: strategy for strategy, mode in _MODE_OF_ID.items()}


@dataclass(frozen=True, slots=True)
class MergeBehaviour:
    """A merge mode with the payload class and strategy id that belong to it."""

    mode: MergeMode
    payload_class: str
    strategy_id: UUID


@dataclass(frozen=True, slots=True)
class Replacement:
    """What version 9 has instead of a retired payload class."""

    mode: MergeMode
    partial_update_mode: PartialUpdateMode | None = None
    delete_mark: tuple[str, str] | None = None
    unavailable_value: str | None = None
    ordering_fields: tuple[str, ...] = ()


_DEBEZIUM_DELETE = (names.DEBEZIUM_OPERATION, "d")
REPLACEMENTS: Final = {
    names.DEFAULT_PAYLOAD: Replacement(MergeMode.EVENT_TIME),
    names.EVENT_TIME_PAYLOAD: Replacement(MergeMode.EVENT_TIME),
    names.OVERWRITE_WITH_LATEST: Replacement(MergeMode.COMMIT_TIME),
    names.PARTIAL_UPDATE: Replacement(MergeMode.EVENT_TIME, PartialUpdateMode.IGNORE_DEFAULTS),
    names.OVERWRITE_NON_DEFAULTS: Replacement(
        MergeMode.COMMIT_TIME, PartialUpdateMode.IGNORE_DEFAULTS
    ),
    names.AWS_DMS: Replacement(MergeMode.COMMIT_TIME, delete_mark=("Op", "D")),
    names.MYSQL_DEBEZIUM: Replacement(
        MergeMode.EVENT_TIME,
        delete_mark=_DEBEZIUM_DELETE,
        ordering_fields=("_event_bin_file", "_event_pos"),
    ),
    names.POSTGRES_DEBEZIUM: Replacement(
        MergeMode.EVENT_TIME,
        PartialUpdateMode.FILL_UNAVAILABLE,
        delete_mark=_DEBEZIUM_DELETE,
        unavailable_value=names.DEBEZIUM_UNAVAILABLE,
        ordering_fields=("_event_lsn",),
    ),
}


def infer_behaviour(
    version: TableVersion,
    *,
    mode: MergeMode | None = None,
    payload: str | None = None,
    strategy: UUID | None = None,
    has_ordering: bool = False,
    mode_must_agree: bool = True,
) -> MergeBehaviour:
    """The whole behaviour from what is given of it; `ConfigError` if the parts contradict.

    `mode_must_agree` is off where a retired payload class is replaced anyway.
    """
    payload = payload_class(payload) if payload else None
    inferred = _inferred_mode(version, mode, payload, strategy, has_ordering)
    if mode is not None and mode_must_agree and mode is not inferred:
        raise _contradiction(
            f"Configured record merge mode ({mode.value}) is inconsistent with payload class "
            f"{payload} and strategy id {strategy}, which mean {inferred.value}."
        )
    if inferred is MergeMode.CUSTOM:
        return custom_behaviour(version, payload, strategy)
    if inferred is MergeMode.COMMIT_TIME:
        payload = names.OVERWRITE_WITH_LATEST
    elif payload != names.EVENT_TIME_PAYLOAD:
        payload = names.DEFAULT_PAYLOAD
    return MergeBehaviour(inferred, payload, _ID_OF_MODE[inferred])


def _inferred_mode(
    version: TableVersion,
    mode: MergeMode | None,
    payload: str | None,
    strategy: UUID | None,
    has_ordering: bool,
) -> MergeMode:
    if payload is None and strategy is None:
        if mode is not None:
            return mode
        return MergeMode.EVENT_TIME if has_ordering else MergeMode.COMMIT_TIME
    by_payload = _MODE_OF_PAYLOAD.get(payload, MergeMode.CUSTOM) if payload else None
    by_id = _MODE_OF_ID.get(strategy, MergeMode.CUSTOM) if strategy else None
    if not version.merge_mode_stored:
        return by_payload or by_id or MergeMode.CUSTOM
    if by_payload and by_id and by_id is not MergeMode.CUSTOM and by_id is not by_payload:
        raise _contradiction(
            f"Strategy id {strategy} ({by_id.value}) contradicts payload class {payload} "
            f"({by_payload.value})."
        )
    return by_id or by_payload or MergeMode.CUSTOM


def custom_behaviour(
    version: TableVersion, payload: str | None, strategy: UUID | None
) -> MergeBehaviour:
    """A CUSTOM behaviour from a payload class, a strategy id or both; `ConfigError` if neither."""
    if payload is None and strategy is None:
        raise _contradiction("Merge mode CUSTOM needs a payload class or a strategy id.")
    if payload is None and strategy == names.PAYLOAD_ID:
        raise _contradiction(f"Strategy id {strategy} needs a payload class.")
    if not version.merge_mode_stored and payload is not None:
        strategy = names.PAYLOAD_ID
    return MergeBehaviour(
        MergeMode.CUSTOM, payload or names.DEFAULT_PAYLOAD, strategy or names.PAYLOAD_ID
    )


def _contradiction(message: str) -> ConfigError:
    return ConfigError(
        message,
        hint="Give one of merge mode, payload class and strategy id; the others follow from it.",
    )


def behaviour_properties(
    version: TableVersion,
    *,
    merge_on_read: bool,
    mode: MergeMode | None = None,
    payload: str | None = None,
    strategy: UUID | None = None,
    ordering_fields: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The properties about merging that a new table stores.

    `options` are the writer's; of them only the custom delete mark is kept, and only by versions
    that keep merge properties.
    """
    payload = payload_class(payload) if payload else None
    retired = version.partial_update_modes and payload in names.RETIRED_PAYLOADS
    behaviour = infer_behaviour(
        version,
        mode=mode,
        payload=payload,
        strategy=strategy,
        has_ordering=bool(ordering_fields),
        mode_must_agree=not retired,
    )
    stored = {version.ordering_fields_key: ",".join(ordering_fields)} if ordering_fields else {}
    if version.partial_update_modes:
        return stored | _latest_properties(version, behaviour, payload, options or {})
    if version.merge_mode_stored:
        return stored | {
            keys.MERGE_MODE: behaviour.mode.value,
            keys.MERGE_STRATEGY_ID: str(behaviour.strategy_id),
            keys.PAYLOAD_CLASS: behaviour.payload_class,
        }
    if merge_on_read:
        stored[keys.PAYLOAD_CLASS] = payload or names.OVERWRITE_WITH_LATEST
        stored[keys.MERGE_STRATEGY_ID_OLD] = str(strategy or names.EVENT_TIME_ID)
    return stored


def _latest_properties(
    version: TableVersion,
    behaviour: MergeBehaviour,
    payload: str | None,
    options: Mapping[str, str],
) -> dict[str, str]:
    mode = behaviour.mode
    if payload is None or behaviour.strategy_id not in names.BUILT_IN_IDS:
        stored = {keys.MERGE_MODE: mode.value}
        if mode is MergeMode.CUSTOM:
            stored[keys.MERGE_STRATEGY_ID] = str(behaviour.strategy_id)
        return stored
    replacement = REPLACEMENTS.get(payload)
    if replacement is None:
        return {
            keys.MERGE_MODE: mode.value,
            keys.PAYLOAD_CLASS: payload,
            keys.MERGE_STRATEGY_ID: str(names.PAYLOAD_ID),
        }
    stored = {keys.MERGE_MODE: replacement.mode.value, keys.LEGACY_PAYLOAD_CLASS: payload}
    if replacement.partial_update_mode is not None:
        stored[keys.PARTIAL_UPDATE_MODE] = replacement.partial_update_mode.value
    if replacement.ordering_fields:
        stored[version.ordering_fields_key] = ",".join(replacement.ordering_fields)
    merge_properties = {}
    if replacement.delete_mark is not None:
        merge_properties[DELETE_FIELD], merge_properties[DELETE_MARKER] = replacement.delete_mark
    if replacement.unavailable_value is not None:
        merge_properties[UNAVAILABLE_VALUE] = replacement.unavailable_value
    if payload == names.DEFAULT_PAYLOAD:
        merge_properties |= {k: options[k] for k in (DELETE_FIELD, DELETE_MARKER) if k in options}
    return stored | {keys.MERGE_PROPERTY_PREFIX + k: v for k, v in merge_properties.items()}
