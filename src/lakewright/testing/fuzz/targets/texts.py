"""Small texts: properties, JSON metadata, index definitions, internal schemas, encoded bitmaps.

What reads must come back equal after it was written, where the product can write it. Properties
must be those that a second, plain reader finds (`properties_model`), paths in commit metadata those
of Python's own JSON reader.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Final

import numpy as np
import pyarrow as pa

from lakewright.codec.bloom import DYNAMIC, SIMPLE, BloomFilter
from lakewright.codec.roaring import decode_positions, encode_positions
from lakewright.errors import FormatError, TableNotFoundError, UnsupportedTableError
from lakewright.format import property_keys as keys
from lakewright.format.internal_schema import (
    InternalSchemas,
    match_columns,
    parse_history,
    parse_internal_schema,
)
from lakewright.format.key_spec import KeySpec
from lakewright.format.properties import (
    BACKUP_FILE,
    PROPERTIES_FILE,
    TableProperties,
    checksum,
    format_properties,
    load_properties,
    parse_properties,
)
from lakewright.format.records import CommitMetadata, WriteStat
from lakewright.metadata.definitions import parse_definitions
from lakewright.runtime.clock import ManualClock
from lakewright.storage.memory import MemoryStorage
from lakewright.testing.fuzz.corpus import Corpus, Seed
from lakewright.testing.fuzz.json_shapes import change_json
from lakewright.testing.fuzz.judging import PATH, Case, Target, demand
from lakewright.testing.fuzz.properties_model import MalformedError, model_properties

__all__ = ["TARGETS"]

_JSON_TOKENS: Final = (
    b"null",
    b"{}",
    b"[]",
    b"-1",
    b"1e999",
    b"9" * 30,
    b"NaN",
    b"true",
    b'"\\ud800"',
    b'"\\u0000"',
    b"[" * 3000,
    b'{"a":' * 3000,
    b"\xff",
    b",",
    b":",
    b'"',
)

# ---- properties ---------------------------------------------------------------------------------


def _property_seeds(corpus: Corpus) -> list[Seed]:
    pairs = {
        keys.NAME: "trips",
        keys.VERSION: "8",
        keys.LAYOUT_VERSION: "2",
        keys.TYPE: "MERGE_ON_READ",
        keys.RECORD_KEY_FIELDS: "a,b",
        keys.PARTITION_FIELDS: "d:TIMESTAMP,c:SIMPLE",
        keys.CHECKSUM: checksum(None, "trips"),
        "weird = key": "a\\b\u0416 \n#",
    }
    made = Seed("made:properties", format_properties(pairs, ("comment",)))
    return [made, *corpus.matching(r"/hoodie\.properties$", limit=24)]


def _check_properties(case: Case) -> None:
    try:
        model = model_properties(case.data)
    except MalformedError:
        model = None
    try:
        pairs = parse_properties(case.data, path=PROPERTIES_FILE)
    except FormatError:
        demand(model is None, "a legal text was refused")
        raise
    demand(_units(pairs) == model, "other pairs than the plain reader's")
    again = parse_properties(format_properties(pairs))
    demand(again == pairs, "pairs do not survive being written")
    storage = MemoryStorage()
    storage.replace(PROPERTIES_FILE, case.data)
    if len(case.data) % 2:
        storage.replace(BACKUP_FILE, case.seed.data)
    inner = "/.hoodie/metadata/" in f"/{case.seed.name.partition('!')[2]}"
    properties = load_properties(storage, clock=ManualClock(), metadata_table=inner)
    for name in dir(TableProperties):
        if not name.startswith("_"):
            getattr(properties, name)
    KeySpec.from_properties(properties)


def _units(pairs: dict[str, str]) -> dict[str, str]:
    """Characters beyond the first plane as two units, as the plain reader has them."""

    def split(text: str) -> str:
        raw = text.encode("utf-16-le", "surrogatepass")
        return "".join(chr(raw[i] | raw[i + 1] << 8) for i in range(0, len(raw), 2))

    return {split(k): split(v) for k, v in pairs.items()}


# ---- commit metadata as JSON ---------------------------------------------------------------------


def _commit_seeds(corpus: Corpus) -> list[Seed]:
    stat = WriteStat(file_id="f", path="p/f_1_2.parquet", num_writes=3, partition_path="p")
    metadata = CommitMetadata(
        partition_to_write_stats={"p": [stat]},
        extra_metadata={"schema": "{}"},
        partition_to_replace_file_ids={"p": ["f"]},
        operation_type="UPSERT",
    )
    real = corpus.matching(r"/\d+\.(delta|replace)?commit$", limit=30, bytes_max=12 << 10)
    return [
        Seed("made:commit", metadata.write_json()),
        *(s for s in real if s.data.lstrip()[:1] == b"{"),
    ]


def _check_commit(case: Case) -> None:
    metadata = CommitMetadata.read(case.data, path=PATH)
    written = metadata.write_json()
    again = CommitMetadata.read(written, path=PATH)
    demand(again.write_json() == written, "metadata does not survive being written")
    if case.data.lstrip()[:1] == b"{":
        told = json.loads(case.data).get("partitionToWriteStats") or {}
        paths = [stat.get("path") for stats in told.values() for stat in stats]
        demand([stat.path for stat in metadata.write_stats] == paths, "other files were written")


# ---- index definitions and internal schemas -----------------------------------------------------


def _definition_seeds(corpus: Corpus) -> list[Seed]:
    text = b"""{"indexDefinitions": {"column_stats": {"indexName": "column_stats", "indexType":
    "COLUMN_STATS", "indexFunction": "", "sourceFields": ["a", "b"], "indexOptions": {"k": "v"},
    "version": "V1"}}}"""
    return [Seed("made:definitions", text), *corpus.matching(r"/index\.json$", limit=8)]


def _check_definitions(case: Case) -> None:
    for definition in parse_definitions(case.data, path=PATH).values():
        _ = definition.is_partitioned, definition.hashes_secondary_key_only


_INTERNAL: Final = b"""{"max_column_id":9,"version_id":20240101000000000,"type":"record","fields":[
{"id":0,"name":"a","optional":true,"type":"int"},
{"id":1,"name":"b","optional":false,"type":{"type":"array","element_id":2,"element":"string"}},
{"id":3,"name":"c","optional":true,"type":{"type":"map","key_id":4,"key":"string","value_id":5,
"value":{"type":"record","fields":[{"id":6,"name":"d","optional":true,"type":"decimal(10, 2)"}]}}}
]}"""


def _internal_seeds(corpus: Corpus) -> list[Seed]:
    history = b'{"schemas":[' + _INTERNAL + b"," + _INTERNAL.replace(b'"a"', b'"z"') + b"]}"
    real = corpus.matching(r"\.schemacommit$", limit=8, bytes_max=30 << 10)
    return [Seed("made:internal", _INTERNAL), Seed("made:internal-history", history), *real]


def _check_internal(case: Case) -> None:
    if b'"schemas"' in case.seed.data:
        versions = parse_history(case.data, path=PATH)
        if versions:
            schemas = InternalSchemas(versions)
            schemas.renames("20240101000000000")
            schemas.for_instant("9" * 20)
        return
    schema = parse_internal_schema(case.data, path=PATH)
    demand(parse_internal_schema(schema.to_json()) == schema, "does not survive being written")
    match_columns(schema, schema)


# ---- bitmaps and bloom filters -------------------------------------------------------------------

_SETS: Final = {
    "few": [0, 1, 5, 70_000, 2**32 + 3],
    "runs": [*range(100, 9000), *range(70_000, 70_100)],
    "bits": list(range(0, 65_536, 7)),
    "many": [n << 16 for n in range(12)],
    "none": [],
}


def _bitmap_seeds(corpus: Corpus) -> list[Seed]:
    del corpus
    return [
        Seed(f"made:roaring-{name}", base64.b64decode(encode_positions(np.array(values, np.int64))))
        for name, values in _SETS.items()
    ]


def _check_bitmap(case: Case) -> None:
    text = base64.b64encode(case.data).decode()
    positions = decode_positions(text, limit=1 << 20, path=PATH)
    demand(bool((np.diff(positions) > 0).all()), "positions are not ascending")
    demand(bool((positions >= 0).all()), "a negative position")
    again = decode_positions(encode_positions(positions))
    demand(bool(np.array_equal(again, positions)), "positions do not survive being written")


def _bloom_seeds(corpus: Corpus) -> list[Seed]:
    del corpus
    words = pa.array([f"key-{n}" for n in range(50)])
    seeds = []
    for kind in (SIMPLE, DYNAMIC):
        for entries, most in ((10, 100), (20, 40)):
            filled = BloomFilter.build(
                words, kind=kind, entries=entries, fpp=0.01, max_entries=most
            )
            raw = base64.b64decode(filled.encode())
            seeds.append(Seed(f"made:bloom-{kind}-{entries}", raw))
    return seeds


def _check_bloom(case: Case) -> None:
    kind = SIMPLE if SIMPLE in case.seed.name else DYNAMIC
    text = base64.b64encode(case.data).decode()
    told = BloomFilter.decode(text, kind, path=PATH)
    demand(len(told.might_contain(pa.array(["key-1", "x", ""]))) == 3, "another number of answers")
    demand(BloomFilter.decode(told.encode(), kind).bits == told.bits, "does not survive")
    try:
        plain = case.data.decode("ascii")
    except UnicodeDecodeError:
        return
    _refuses_or_reads(plain, kind)


def _refuses_or_reads(text: str, kind: str) -> None:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        try:
            BloomFilter.decode(text, kind, path=PATH)
        except FormatError:
            return
        demand(False, "text that is not Base64 was read")


TARGETS: Final = (
    Target(
        name="properties",
        about="hoodie.properties and everything it decides",
        seeds=_property_seeds,
        check=_check_properties,
        allowed=(FormatError, UnsupportedTableError, TableNotFoundError),
        path=PROPERTIES_FILE,
        unplaced=(TableNotFoundError,),
        tokens=(b"\\u", b"\\", b"\n", b"=", b":", b"#", b"hoodie.table.version=", b"9" * 9),
        share=4,
    ),
    Target(
        name="commit-json",
        about="commit metadata of version 6",
        seeds=_commit_seeds,
        check=_check_commit,
        tokens=(*_JSON_TOKENS, b"partitionToWriteStats", b"Obj\x01", b"extraMetadata"),
        shapes=(change_json,),
        share=6,
    ),
    Target(
        name="definitions",
        about="index definitions",
        seeds=_definition_seeds,
        check=_check_definitions,
        tokens=_JSON_TOKENS,
        shapes=(change_json,),
        share=2,
    ),
    Target(
        name="internal-schema",
        about="schemas with column ids and their history",
        seeds=_internal_seeds,
        check=_check_internal,
        tokens=(*_JSON_TOKENS, b'"record"', b'"map"', b'"element"', b'"version_id"'),
        shapes=(change_json,),
        share=3,
    ),
    Target(
        name="roaring",
        about="record positions",
        seeds=_bitmap_seeds,
        check=_check_bitmap,
        tokens=(b"\x3a\x30\x00\x00", b"\x3b\x30\x00\x00", b"\xff\xff"),
        share=4,
    ),
    Target(
        name="bloom",
        about="bloom filters",
        seeds=_bloom_seeds,
        check=_check_bloom,
        unplaced=(FormatError,),
        tokens=(b"\xff\xff\xff\xff", b"\x00\x00\x00\x01"),
        share=3,
    ),
)
