"""W6: decoding Avro log records into Arrow columns, and encoding them."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from bench.data import events20, uuid_keys
from lakewright.codec.avro.arrow_types import arrow_schema, from_arrow
from lakewright.codec.avro.columns import decode_records, encode_records
from lakewright.codec.avro.schema import to_json


def _payload(params: dict[str, Any]) -> tuple[Any, bytes, np.ndarray, pa.RecordBatch]:
    rng = np.random.default_rng(6)
    n = params["records"]
    table = events20(rng, uuid_keys(rng, n), rng.integers(0, 10**9, n))
    batch = table.combine_chunks().to_batches()[0]
    schema = from_arrow(batch.schema, name="events_record", namespace="hoodie.events")
    payload, offsets = encode_records(batch, schema)
    return schema, payload, offsets, batch


def ours(params: dict[str, Any]) -> Callable[[], object]:
    """The lockstep decoder."""
    schema, payload, offsets, _ = _payload(params)
    return lambda: decode_records(payload, offsets[:-1], offsets[1:], schema)


def fastavro(params: dict[str, Any]) -> Callable[[], object]:
    """fastavro record by record, then columns."""
    import json

    import fastavro as fa

    schema, payload, offsets, _ = _payload(params)
    parsed = fa.parse_schema(json.loads(to_json(schema)))
    target = arrow_schema(schema)

    def call() -> object:
        source = io.BytesIO(payload)
        rows = [fa.schemaless_reader(source, parsed) for _ in range(len(offsets) - 1)]
        return pa.Table.from_pylist(rows, schema=target)

    return call


def polars(params: dict[str, Any]) -> Callable[[], object]:
    """Polars' native reader on an object container of the same records."""
    import polars as pl

    schema, payload, offsets, _ = _payload(params)
    text = to_json(schema).encode()

    def varint(n: int) -> bytes:
        n <<= 1
        out = bytearray()
        while n > 127:
            out.append(n & 127 | 128)
            n >>= 7
        out.append(n)
        return bytes(out)

    sync = bytes(range(16))
    key = b"avro.schema"
    header = (
        b"Obj\x01" + varint(1) + varint(len(key)) + key + varint(len(text)) + text + b"\x00" + sync
    )
    block = varint(len(offsets) - 1) + varint(len(payload)) + payload + sync
    data = header + block
    return lambda: pl.read_avro(io.BytesIO(data)).to_arrow()


CONTENDERS = {"ours": ours, "fastavro": fastavro, "polars": polars}


def check(result: object) -> str:
    """Row count and integer sums."""
    table = pa.Table.from_batches([result]) if isinstance(result, pa.RecordBatch) else result
    assert isinstance(table, pa.Table)
    import pyarrow.compute as pc

    lengths = pc.sum(pc.utf8_length(table["s4"].cast(pa.string())))
    return f"{table.num_rows}:{pc.sum(table['l1'])}:{pc.sum(table['ts'])}:{lengths}"
