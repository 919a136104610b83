"""Merge modes, strategy ids and payload classes, spelled as in `hoodie.properties`."""

from __future__ import annotations

from enum import Enum
from typing import Final
from uuid import UUID


class MergeMode(Enum):
    """How two versions of a row are combined."""

    EVENT_TIME = "EVENT_TIME_ORDERING"
    COMMIT_TIME = "COMMIT_TIME_ORDERING"
    CUSTOM = "CUSTOM"


class PartialUpdateMode(Enum):
    """What counts as "no value" in a full row, so that the losing row fills it (version 9)."""

    IGNORE_DEFAULTS = "IGNORE_DEFAULTS"
    FILL_UNAVAILABLE = "FILL_UNAVAILABLE"


class Semantics(Enum):
    """Whose payload rules judge a table."""

    ZERO = "0.x"
    """Hudi 0.14 and 0.15: the payload class decides, and differently per phase."""
    ONE = "1.x"
    """Hudi 1.1 and later: the merge mode decides, the payload class only in CUSTOM mode."""


EVENT_TIME_ID: Final = UUID("eeb8d96f-b1e4-49fd-bbf8-28ac514178e5")
COMMIT_TIME_ID: Final = UUID("ce9acb64-bde0-424c-9b91-f6ebba25356d")
PAYLOAD_ID: Final = UUID("00000000-0000-0000-0000-000000000000")
CUSTOM_ID: Final = UUID("1897ef5f-18bc-4557-939c-9d6a8afd1519")
BUILT_IN_IDS: Final = frozenset({EVENT_TIME_ID, COMMIT_TIME_ID, PAYLOAD_ID, CUSTOM_ID})

_MODEL = "org.apache.hudi.common.model."
OVERWRITE_WITH_LATEST: Final = _MODEL + "OverwriteWithLatestAvroPayload"
DEFAULT_PAYLOAD: Final = _MODEL + "DefaultHoodieRecordPayload"
EVENT_TIME_PAYLOAD: Final = _MODEL + "EventTimeAvroPayload"
PARTIAL_UPDATE: Final = _MODEL + "PartialUpdateAvroPayload"
OVERWRITE_NON_DEFAULTS: Final = _MODEL + "OverwriteNonDefaultsWithLatestAvroPayload"
AWS_DMS: Final = _MODEL + "AWSDmsAvroPayload"
MYSQL_DEBEZIUM: Final = _MODEL + "debezium.MySqlDebeziumAvroPayload"
POSTGRES_DEBEZIUM: Final = _MODEL + "debezium.PostgresDebeziumAvroPayload"
FIRST_VALUE: Final = _MODEL + "FirstValueAvroPayload"
REVERSE_ORDER: Final = _MODEL + "ReverseOrderHoodieRecordPayload"
AVRO_PAYLOAD: Final = _MODEL + "HoodieAvroPayload"
JSON_PAYLOAD: Final = "org.apache.hudi.common.HoodieJsonPayload"
REWRITE_PAYLOAD: Final = _MODEL + "RewriteAvroPayload"
EMPTY_PAYLOAD: Final = _MODEL + "EmptyHoodieRecordPayload"

RETIRED_PAYLOADS: Final = frozenset(
    {
        OVERWRITE_WITH_LATEST,
        DEFAULT_PAYLOAD,
        EVENT_TIME_PAYLOAD,
        PARTIAL_UPDATE,
        OVERWRITE_NON_DEFAULTS,
        AWS_DMS,
        MYSQL_DEBEZIUM,
        POSTGRES_DEBEZIUM,
    }
)
"""Classes that version 9 replaces by modes and properties."""

DEBEZIUM_OPERATION: Final = "_change_operation_type"
DEBEZIUM_UNAVAILABLE: Final = "__debezium_unavailable_value"
_OLD_PACKAGE = "com.uber.hoodie"


def payload_class(name: str) -> str:
    """A payload class under its present package."""
    name = name.strip()
    return f"org.apache.hudi{name[len(_OLD_PACKAGE) :]}" if name.startswith(_OLD_PACKAGE) else name


def short_name(name: str) -> str:
    """The class name without its package."""
    return name.rsplit(".", 1)[-1]
