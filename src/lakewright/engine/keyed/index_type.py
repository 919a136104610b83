"""Which index a keyed write uses: Hudi's types, but those of other systems."""

from __future__ import annotations

from enum import Enum
from typing import Final

from lakewright.errors import OptionError

__all__ = ["IndexType", "index_type"]


class IndexType(Enum):
    """How the rows of a keyed write find their file groups."""

    SIMPLE = "SIMPLE"
    """By the key columns of the base files of their partition."""
    GLOBAL_SIMPLE = "GLOBAL_SIMPLE"
    """By the key columns of all base files."""
    BLOOM = "BLOOM"
    """As SIMPLE, without reading files whose bounds and bloom filters exclude the keys."""
    GLOBAL_BLOOM = "GLOBAL_BLOOM"
    RECORD_INDEX = "RECORD_INDEX"
    """As GLOBAL_SIMPLE, in the files that the record index of the metadata table names."""
    RECORD_LEVEL_INDEX = "RECORD_LEVEL_INDEX"
    """As SIMPLE, in the files that a record index per partition names."""
    BUCKET = "BUCKET"
    """By a hash of the key, without looking."""

    @property
    def is_global(self) -> bool:
        """Whether a key is one row in the whole table, not in its partition."""
        kinds = (IndexType.GLOBAL_SIMPLE, IndexType.GLOBAL_BLOOM, IndexType.RECORD_INDEX)
        return self in kinds

    @property
    def uses_records(self) -> bool:
        """Whether a record index is asked first."""
        return self in (IndexType.RECORD_INDEX, IndexType.RECORD_LEVEL_INDEX)

    @property
    def uses_filters(self) -> bool:
        """Whether footers are asked before key columns."""
        return self in (IndexType.BLOOM, IndexType.GLOBAL_BLOOM)


_NEWER_NAMES: Final = {"GLOBAL_RECORD_LEVEL_INDEX": IndexType.RECORD_INDEX.value}
"""What Hudi 1.1 and later call them."""


def index_type(told: str | None, *, buckets: bool) -> IndexType:
    """The index of a write; `buckets`: the table's file groups are buckets.

    `OptionError` for an index that cannot be used here, or that the table's files contradict.
    """
    if told is None:
        return IndexType.BUCKET if buckets else IndexType.SIMPLE
    name = told.strip().upper()
    try:
        chosen = IndexType(_NEWER_NAMES.get(name, name))
    except ValueError:
        known = ", ".join(kind.value for kind in IndexType)
        raise OptionError(
            f"The index {told} cannot be used for this write.",
            hint=f"Choose one of {known}.",
            context={"option": "hoodie.index.type", "value": told},
        ) from None
    if buckets and chosen is not IndexType.BUCKET:
        raise OptionError(
            f"The table's file groups are buckets; the index {chosen.value} would add others.",
            hint="Write with hoodie.index.type=BUCKET and the table's number of buckets.",
            context={"option": "hoodie.index.type", "value": told},
        )
    return chosen
