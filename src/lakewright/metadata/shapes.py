"""What records of the metadata table must look like for their fields to be taken by name.

Records are decoded with the schema that stands beside them. A damaged or foreign schema may decode
and still have other fields, or fields of other types; `misfit` tells so before anything is taken
from a column. Fields that are not used here may be anything.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.types as pt

__all__ = ["misfit"]

_TEXT, _LONG, _INT, _FLAG = pa.string(), pa.int64(), pa.int32(), pa.bool_()

_NEEDED: Final[dict[str, pa.DataType]] = {
    "type": _INT,
    "filesystemMetadata": pa.map_(_TEXT, pa.struct({"size": _LONG, "isDeleted": _FLAG})),
    "ColumnStatsMetadata": pa.struct(
        {
            "fileName": _TEXT,
            "minValue": pa.struct([]),
            "maxValue": pa.struct([]),
            "valueCount": _LONG,
            "nullCount": _LONG,
            "totalSize": _LONG,
            "totalUncompressedSize": _LONG,
            "isDeleted": _FLAG,
        }
    ),
    "recordIndexMetadata": pa.struct(
        {
            "partitionName": _TEXT,
            "fileIdEncoding": _INT,
            "fileIdHighBits": _LONG,
            "fileIdLowBits": _LONG,
            "fileIndex": _INT,
            "fileId": _TEXT,
            "instantTime": _LONG,
        }
    ),
    "SecondaryIndexMetadata": pa.struct({"isDeleted": _FLAG}),
    "BloomFilterMetadata": pa.struct(
        {"type": _TEXT, "bloomFilter": pa.binary(), "isDeleted": _FLAG}
    ),
}
_OPTIONAL: Final[dict[str, pa.DataType]] = {
    "ColumnStatsMetadata": pa.struct(
        {
            "isTightBound": _FLAG,
            "valueType": pa.struct({"typeOrdinal": _INT, "additionalInfo": _TEXT}),
        }
    ),
}


def misfit(column: str, found: pa.DataType) -> str | None:
    """What is wrong with the type of a column; None if its fields can be used."""
    needed, optional = _NEEDED.get(column), _OPTIONAL.get(column)
    if needed is not None:
        wrong = _difference(column, found, needed)
        if wrong is not None:
            return wrong
    if optional is not None:
        for field in optional:
            if found.get_field_index(field.name) >= 0:
                place = f"{column}.{field.name}"
                wrong = _difference(place, found.field(field.name).type, field.type)
                if wrong is not None:
                    return wrong
    return None


def _difference(place: str, found: pa.DataType, needed: pa.DataType) -> str | None:
    if pt.is_struct(needed):
        if not pt.is_struct(found):
            return f"{place} is no record"
        for field in needed:
            if found.get_field_index(field.name) < 0:
                return f"{place} has no {field.name}"
            inner = found.field(field.name).type
            wrong = _difference(f"{place}.{field.name}", inner, field.type)
            if wrong is not None:
                return wrong
        return None
    if pt.is_map(needed):
        if not pt.is_map(found):
            return f"{place} is no map"
        return _difference(f"{place} values", found.item_type, needed.item_type)
    return None if found == needed else f"{place} is {found}, not {needed}"
