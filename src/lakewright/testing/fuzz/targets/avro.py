"""Avro: records in columns, container files, schemas, and the typed records of a timeline.

What the columnar decoder reads must be what fastavro reads from the same bytes; the same holds for
container files. A typed record or a schema that reads must come back equal after it was written.
"""

from __future__ import annotations

import io
import json
import struct
from functools import lru_cache
from random import Random
from typing import Any, Final

import numpy as np

from lakewright.codec.avro.arrow_types import arrow_schema, from_arrow
from lakewright.codec.avro.columns import decode_records
from lakewright.codec.avro.container import MAGIC, SYNC_SIZE, read_container, write_container
from lakewright.codec.avro.datum import write_datum
from lakewright.codec.avro.schema import Primitive, Record, parse_schema, to_json
from lakewright.errors import FormatError, SchemaError
from lakewright.format.block_rows import record_schema
from lakewright.format.log_block import BlockType, read_blocks
from lakewright.format.log_content import avro_frames
from lakewright.format.records import CommitMetadata
from lakewright.format.records.model import read_record
from lakewright.format.table_schema import with_meta_columns
from lakewright.format.version import TableVersion
from lakewright.testing.fuzz.avro_model import (
    UndecodableError,
    UnknownSchemaError,
    model_records,
    plain_rows,
    same,
)
from lakewright.testing.fuzz.corpus import Corpus, Seed
from lakewright.testing.fuzz.json_shapes import change_json, change_json_line
from lakewright.testing.fuzz.judging import PATH, Case, Target, demand, demand_sound, same_values
from lakewright.testing.fuzz.made import (
    EVERY_TYPE,
    LONG_ARRAY,
    RARE_TYPES,
    every_type_bodies,
    long_array_body,
    rare_type_bodies,
)
from lakewright.testing.fuzz.mutators import mutate_plainly

__all__ = ["TARGETS"]

_JSON_TOKENS: Final = (
    b'"null"',
    b'"string"',
    b'{"type":"array","items":"long"}',
    b'{"type":"fixed","name":"f","size":2147483647}',
    b'"logicalType":"decimal","precision":99999,"scale":5,',
    b'"default":null,',
    b"[[[[[[[[[[[[[[[[[[[[",
    b"null",
    b"1e999",
    b"-1",
    b'"\\ud800"',
    b"{}",
)


# ---- records in columns -------------------------------------------------------------------------


def pack_records(schema: str, bodies: list[bytes]) -> bytes:
    """Schema text on one line, then the records with lengths in front."""
    line = json.dumps(json.loads(schema), separators=(",", ":")).encode()
    return line + b"\n" + b"".join(struct.pack(">I", len(b)) + b for b in bodies)


def _unpack_records(data: bytes) -> tuple[bytes, list[bytes]]:
    schema, _, rest = data.partition(b"\n")
    bodies, at = [], 0
    while at + 4 <= len(rest):
        (size,) = struct.unpack_from(">I", rest, at)
        bodies.append(rest[at + 4 : at + 4 + size])
        at += 4 + size
    return schema, bodies


def _record_seeds(corpus: Corpus) -> list[Seed]:
    bodies = list(every_type_bodies())
    seeds = [
        Seed("made:records", pack_records(EVERY_TYPE, bodies)),
        Seed("made:many-records", pack_records(EVERY_TYPE, bodies * 8)),
        Seed("made:rare-records", pack_records(RARE_TYPES, rare_type_bodies())),
        Seed("made:many-rare-records", pack_records(RARE_TYPES, rare_type_bodies() * 8)),
        Seed("made:long-array", pack_records(LONG_ARRAY, [long_array_body()])),
    ]
    for seed in corpus.matching(r"\.log\.\d+_[^/]*$", limit=60, bytes_max=16 << 10):
        for block in read_blocks(seed.data, path=seed.name):
            if block.type is BlockType.AVRO_DATA:
                starts, ends = avro_frames(block)
                frames = zip(starts.tolist(), ends.tolist(), strict=True)
                bodies = [bytes(block.content[a:b]) for a, b in frames]
                text = to_json(record_schema(block))
                seeds.append(Seed(f"{seed.name}#{block.offset}", pack_records(text, bodies[:20])))
    return seeds[:40]


def _check_records(case: Case) -> None:
    text, bodies = _unpack_records(case.data)
    schema = parse_schema(text)
    if not isinstance(schema, Record):
        return
    payload = b"".join(bodies)
    ends = np.cumsum([len(b) for b in bodies]).astype(np.int64)
    starts = ends - np.array([len(b) for b in bodies], np.int64)
    some = [f.name for f in schema.fields][len(bodies) % 3 :: 3]
    try:
        batch = decode_records(payload, starts, ends, schema, path=PATH)
    except FormatError:
        # A reader of fewer columns may stop before the damage, but must not fall over it.
        decode_records(payload, starts, ends, schema, columns=some, path=PATH)
        raise
    demand_sound(batch)
    fewer = decode_records(payload, starts, ends, schema, columns=some, path=PATH)
    chosen = batch.select(fewer.schema.names)
    demand(not some or same_values(fewer, chosen), "fewer columns, other values")
    if case.spot:
        try:
            model = model_records(text.decode(), bodies)
        except UndecodableError as error:
            demand(False, f"rows that fastavro does not read: {error}")
            return
        except UnknownSchemaError:
            return
        demand(same(plain_rows(batch, schema), model), "rows differ from fastavro's")


def _change_record(data: bytes, random: Random) -> bytes:
    schema, bodies = _unpack_records(data)
    if not bodies:
        return data
    number = random.randrange(len(bodies))
    bodies[number] = mutate_plainly(bodies[number], random)
    return schema + b"\n" + b"".join(struct.pack(">I", len(b)) + b for b in bodies)


# ---- container files ----------------------------------------------------------------------------


def _container_seeds(corpus: Corpus) -> list[Seed]:
    text = json.dumps({"type": "record", "name": "r", "fields": [{"name": "a", "type": "long"}]})
    empty = json.dumps({"type": "record", "name": "r", "fields": []})
    made = {
        "longs": write_container(text, [{"a": n} for n in range(9)], sync=b"0123456789abcdef"),
        "none": write_container(text, [], sync=b"0123456789abcdef"),
        "empty-records": write_container(empty, [{}] * 5, sync=b"0123456789abcdef"),
        "deflate": _deflated(text),
    }
    return [*(Seed(f"made:container-{n}", d) for n, d in made.items()), *_instant_seeds(corpus)]


def _deflated(text: str) -> bytes:
    import zlib

    schema = parse_schema(text)
    body = b"".join(write_datum({"a": n}, schema) for n in range(50))
    engine = zlib.compressobj(wbits=-15)
    packed = engine.compress(body) + engine.flush()
    meta = {"avro.schema": text.encode(), "avro.codec": b"deflate"}
    header = b"\x04" + b"".join(_text(k.encode()) + _text(v) for k, v in meta.items()) + b"\x00"
    sync = b"0123456789abcdef"
    return MAGIC + header + sync + _long(50) + _long(len(packed)) + packed + sync


def _long(value: int) -> bytes:
    return write_datum(value, Primitive("long"))


def _text(value: bytes) -> bytes:
    return _long(len(value)) + value


def _check_container(case: Case) -> None:
    container = read_container(case.data, path=PATH)
    if not case.spot:
        return
    import fastavro

    try:
        reader = fastavro.reader(io.BytesIO(case.data))
    except Exception:
        return  # a schema that only we accept
    try:
        model = list(reader)
    except Exception as error:
        demand(False, f"a container that fastavro does not read: {type(error).__name__}: {error}")
        return
    if "logicalType" not in container.schema_json:
        demand(same(container.records, model), "records differ from fastavro's")


def _change_block(data: bytes, random: Random) -> bytes:
    """Damage inside the records of a container, with the size in front set right."""
    try:
        container = read_container(data, path=PATH)
    except FormatError:
        return data
    start = data.find(container.sync) + SYNC_SIZE
    body = b"".join(write_datum(r, container.schema) for r in container.records)
    body = mutate_plainly(body, random)
    count = len(container.records) + random.choice((0, 0, 0, 1, -1))
    return data[:start] + _long(count) + _long(len(body)) + body + container.sync


def _change_header(data: bytes, random: Random) -> bytes:
    """The schema of a container changed to another one, records as they are."""
    try:
        container = read_container(data, path=PATH)
    except FormatError:
        return data
    start = data.find(container.sync)
    text = change_json(container.schema_json.encode(), random)
    return MAGIC + b"\x02" + _text(b"avro.schema") + _text(text) + b"\x00" + data[start:]


# ---- plans and metadata of instants -------------------------------------------------------------


def _instant_seeds(corpus: Corpus) -> list[Seed]:
    kinds = (
        r"\.compaction\.requested",
        r"\.clean\.requested",
        r"\.clean",
        r"\.rollback\.requested",
        r"\.rollback",
        r"\.restore\.requested",
        r"\.restore",
        r"\.(clustering|replacecommit)\.requested",
        r"\.indexing\.requested",
        r"\.indexing",
        r"\.savepoint",
        r"\.replacecommit",
        r"\.commit",
        r"\.deltacommit",
    )
    found = [
        seed
        for kind in kinds
        for seed in corpus.matching(rf"/\d+(_\d+)?{kind}$", limit=6, bytes_max=12 << 10)
    ]
    return [*_made_plans(), *(seed for seed in found if seed.data[:4] == MAGIC)]


@lru_cache(maxsize=1)
def _made_plans() -> tuple[Seed, ...]:
    from lakewright.format.records.definitions import record_names, schema_json

    seeds = []
    for name in record_names():
        text = schema_json(name)
        try:
            data = write_container(text, [_sample(parse_schema(text))], sync=b"fedcba9876543210")
            read_record(data, path=PATH)
        except FormatError:
            continue  # a part of other records
        seeds.append(Seed(f"made:{name}", data))
    return tuple(seeds)


def _sample(schema: Any) -> Any:
    """A value in which every field is filled."""
    from lakewright.codec.avro.schema import Array, Map, Union

    match schema:
        case Record(fields=fields):
            return {f.name: _sample(f.type) for f in fields}
        case Array(items=items):
            return [_sample(items)]
        case Map(values=values):
            return {"k": _sample(values)}
        case Union(branches=branches):
            return _sample(next(b for b in branches if b != Primitive("null")))
        case Primitive(kind="string"):
            return "text"
        case Primitive(kind="bytes"):
            return b"b"
        case Primitive(kind="boolean"):
            return True
        case Primitive(kind="double" | "float"):
            return 1.5
    return 7


def _check_plan(case: Case) -> None:
    record = read_record(case.data, path=PATH)
    for version in (TableVersion.of(6), TableVersion.of(8)):
        if isinstance(record, CommitMetadata) and not version.commit_metadata_avro:
            continue
        try:
            again = type(record).read(record.write(version), path=PATH)
        except SchemaError as error:
            demand(False, f"a record that was read cannot be written: {error.message}")
            raise
        if not version.commit_metadata_avro:
            continue  # fields of newer releases are lost there
        demand(_plain(again) == _plain(record), "a record does not survive being written")


def _plain(record: Any) -> str:
    return repr(record)


# ---- schemas ------------------------------------------------------------------------------------


def _schema_seeds(corpus: Corpus) -> list[Seed]:
    seeds = [Seed("made:schema", EVERY_TYPE.encode()), Seed("made:rare", RARE_TYPES.encode())]
    for seed in corpus.matching(r"\.log\.\d+_[^/]*$", limit=30, bytes_max=16 << 10):
        first = read_blocks(seed.data, path=seed.name)[:1]
        seeds += [Seed(f"{seed.name}#schema", b.schema.encode()) for b in first if b.type.is_data]
    return seeds


def _check_schema(case: Case) -> None:
    schema = parse_schema(case.data)
    text = to_json(schema)
    demand(parse_schema(text) == schema, "a schema does not survive being written")
    if isinstance(schema, Record):
        columns = arrow_schema(schema)
        arrow_schema(with_meta_columns(schema))
        from_arrow(columns, name="n", namespace="s")


TARGETS: Final = (
    Target(
        name="records",
        about="Avro records decoded in columns",
        seeds=_record_seeds,
        check=_check_records,
        unplaced=(SchemaError,),
        tokens=(b"\x02", b"\x00", b"\x80", b"\xff" * 9 + b"\x01", *_JSON_TOKENS[:5]),
        shapes=(_change_record, _change_record, change_json_line),
        share=12,
    ),
    Target(
        name="container",
        about="Avro container files",
        seeds=_container_seeds,
        check=_check_container,
        tokens=(MAGIC, b"avro.schema", b"avro.codec", b"\x0edeflate", b"\x08null", *_JSON_TOKENS),
        shapes=(_change_block, _change_header),
        share=6,
    ),
    Target(
        name="plan",
        about="plans and metadata of instants, as Avro",
        seeds=_instant_seeds,
        check=_check_plan,
        tokens=(MAGIC, b"\x02", b"\x00", b'"null"', b'"int"', b'"string"', b"Hoodie"),
        shapes=(_change_block, _change_block, _change_header),
        share=8,
    ),
    Target(
        name="schema",
        about="Avro schemas and their columns",
        seeds=_schema_seeds,
        check=_check_schema,
        unplaced=(SchemaError,),
        tokens=_JSON_TOKENS,
        shapes=(change_json,),
        share=6,
    ),
)
