"""Avro records as Arrow columns: decoding and encoding, all records in lockstep.

The door to `decode` and `encode`; see there for guarantees and limits.
"""

from lakewright.codec.avro.decode import decode_batches, decode_records
from lakewright.codec.avro.encode import encode_records

__all__ = ["decode_batches", "decode_records", "encode_records"]
