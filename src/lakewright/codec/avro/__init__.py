"""Avro: schemas, records as Arrow columns, single values, container files.

Schemas are values (`schema`, `types`) with an Arrow counterpart (`arrow_types`). Many records go
through `columns`, which moves all of them in lockstep; one value at a time goes through `datum`,
and files with their schema inside through `container`. Nothing here knows tables or timelines.
"""

from lakewright.codec.avro.arrow_types import arrow_schema, arrow_type, from_arrow
from lakewright.codec.avro.columns import decode_batches, decode_records, encode_records
from lakewright.codec.avro.container import Container, read_container, write_container
from lakewright.codec.avro.datum import Branch, read_datum, write_datum
from lakewright.codec.avro.schema import parse_schema, to_json
from lakewright.codec.avro.types import AvroType, Record

__all__ = [
    "AvroType",
    "Branch",
    "Container",
    "Record",
    "arrow_schema",
    "arrow_type",
    "decode_batches",
    "decode_records",
    "encode_records",
    "from_arrow",
    "parse_schema",
    "read_container",
    "read_datum",
    "to_json",
    "write_container",
    "write_datum",
]
