"""Which merger a table gets.

The table's properties decide the rule, the registry only supplies implementations: it is asked for
strategies and payload classes that are not Hudi's own, never for the built-in modes. What nobody
supplies is an error that says what is missing and what there is; there is no default to fall back
to, because a wrong merge is a wrong table.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from lakewright.errors import ConfigError, MergerNotFoundError
from lakewright.merge import names
from lakewright.merge.commit_time import CommitTimeMerger
from lakewright.merge.config import MergeConfig
from lakewright.merge.deletes import DeleteRule
from lakewright.merge.event_time import EventTimeMerger
from lakewright.merge.names import MergeMode, Semantics, short_name
from lakewright.merge.partial import Placeholders
from lakewright.merge.payloads import PAYLOADS, PayloadMerger
from lakewright.merge.protocol import RecordMerger, RecordType


class MergerRegistry:
    """Users' mergers by strategy id and record type, and by payload class."""

    def __init__(self, mergers: Iterable[RecordMerger] = ()) -> None:
        self._by_strategy: dict[tuple[UUID, RecordType], RecordMerger] = {}
        self._by_payload: dict[str, RecordMerger] = {}
        for merger in mergers:
            self.register(merger)

    def register(self, merger: RecordMerger, *, payload_class: str | None = None) -> None:
        """Supply a merger for its strategy, or as the stand-in of a Java payload class.

        `ConfigError` for what Hudi defines itself and for a second merger in the same place.
        """
        if payload_class is not None:
            self._register_payload(merger, names.payload_class(payload_class))
            return
        if merger.strategy in names.BUILT_IN_IDS - {names.CUSTOM_ID}:
            raise ConfigError(
                f"Strategy {merger.strategy} is built in and cannot be replaced.",
                hint="Give the merger a UUID of its own, or register it with payload_class=.",
            )
        place = (merger.strategy, merger.record_type)
        if self._by_strategy.setdefault(place, merger) != merger:
            raise ConfigError(
                f"Another merger is registered for strategy {merger.strategy}, record type "
                f"{merger.record_type.value}.",
                hint="Register one merger per strategy and record type.",
            )

    def resolve(
        self, config: MergeConfig, *, record_type: RecordType = RecordType.ARROW
    ) -> RecordMerger:
        """The merger of a table; `MergerNotFoundError` if nobody supplies it.

        A merger of record type AVRO serves where there is none of the asked type.
        """
        if config.semantics is Semantics.ZERO:
            if config.user_strategy is not None:
                return self._of_strategy(config.user_strategy, record_type)
            return self._of_payload(config)
        if config.mode is MergeMode.EVENT_TIME:
            return EventTimeMerger(_delete_rule(config), _placeholders(config))
        if config.mode is MergeMode.COMMIT_TIME:
            return CommitTimeMerger(_delete_rule(config), _placeholders(config))
        if config.strategy_id == names.PAYLOAD_ID:
            return self._of_payload(config)
        return self._of_strategy(config.strategy_id, record_type)

    def _register_payload(self, merger: RecordMerger, name: str) -> None:
        if any(name in known for known in PAYLOADS.values()):
            raise ConfigError(
                f"Payload class {name} is built in and cannot be replaced.",
                hint="Register mergers only for payload classes that are not Hudi's own.",
            )
        if self._by_payload.setdefault(name, merger) != merger:
            raise ConfigError(
                f"Another merger is registered for payload class {name}.",
                hint="Register one merger per payload class.",
            )

    def _of_payload(self, config: MergeConfig) -> RecordMerger:
        built_in = PayloadMerger.of(config)
        if built_in is not None:
            return built_in
        found = self._by_payload.get(config.payload_class)
        if found is None:
            name = config.payload_class
            raise MergerNotFoundError(
                f"The table merges by payload class {name}, which is not known here. "
                f"{self._inventory()}",
                hint=f"Write the rule of {short_name(name)} as a merger and register it with "
                f"payload_class={name!r}.",
                context={"payload_class": name},
            )
        return found

    def _of_strategy(self, strategy: UUID, record_type: RecordType) -> RecordMerger:
        for kind in (record_type, RecordType.AVRO):
            found = self._by_strategy.get((strategy, kind))
            if found is not None:
                return found
        raise MergerNotFoundError(
            f"The table merges by strategy {strategy}, for which no merger of record type "
            f"{record_type.value} is registered. {self._inventory()}",
            hint="Register the merger that the table's writers use: a function decorated with "
            f"@merger(strategy='{strategy}').",
            context={"strategy": str(strategy), "record_type": record_type.value},
        )

    def _inventory(self) -> str:
        entries = [f"{strategy} ({kind.value})" for strategy, kind in self._by_strategy]
        entries += sorted(self._by_payload)
        return f"Registered: {', '.join(entries) or 'nothing'}."


def _delete_rule(config: MergeConfig) -> DeleteRule:
    return DeleteRule(field=config.delete_field, marker=config.delete_marker)


def _placeholders(config: MergeConfig) -> Placeholders | None:
    if config.partial_update_mode is None:
        return None
    return Placeholders(config.partial_update_mode, config.unavailable_value)
