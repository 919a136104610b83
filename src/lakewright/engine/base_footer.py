"""What the footer of a base file says about its keys: bounds and a bloom filter.

Bounds compare as Java strings do, by UTF-16 code units; the filter is Hudi's, byte for byte. Keys
are taken batch by batch and not kept. With a spawner the filter is filled beside the caller, in
order and at most one batch behind; an error of it surfaces at the next call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakewright.codec.bloom import DYNAMIC, SIMPLE, BloomBuilder, BloomFilter
from lakewright.codec.hashing import ByteRows
from lakewright.engine.write_context import WriteContext
from lakewright.errors import FormatError
from lakewright.runtime.spawn import Spawner, Task

__all__ = ["FooterKeys", "JavaOrder", "in_java_order", "key_bounds", "text_bounds"]

AVRO_SCHEMA = "parquet.avro.schema"
MODEL = "writer.model.name"
BLOOM = "org.apache.hudi.bloomfilter"
BLOOM_TYPE = "hoodie_bloom_filter_type_code"
MINIMUM = "hoodie_min_record_key"
MAXIMUM = "hoodie_max_record_key"

_PRIVATE_USE = 0xEE
"""First byte of U+E000 and above in UTF-8; Java sorts these after everything that is longer."""
_JAVA_ORDER = np.arange(256, dtype=np.uint8)
_JAVA_ORDER[0xEE], _JAVA_ORDER[0xEF] = 0xFE, 0xFF
_UTF8_BYTES = bytes.maketrans(b"\xfe\xff", b"\xee\xef")
_JAVA_BYTES = bytes.maketrans(b"\xee\xef", b"\xfe\xff")


class FooterKeys:
    """Collects what the footer tells about the keys of one file."""

    def __init__(self, context: WriteContext, *, spawner: Spawner | None = None) -> None:
        self._context = context
        self._spawner = spawner
        populated = context.populate_meta
        policy = context.bloom if populated else None
        self._kind = policy.kind if policy else None
        self._bloom = policy.builder() if policy else None
        self._populated = populated
        self._running: Task[None] | None = None
        self._bounds: tuple[bytes, bytes] | None = None

    @classmethod
    def inherited(
        cls, context: WriteContext, footer: Mapping[str, str], *, spawner: Spawner | None = None
    ) -> FooterKeys | None:
        """What the footer of an older version tells about its keys, to be gone on with.

        A filter keeps keys that have been deleted since; it then says too often that a key may be
        there, never too seldom. None if the footer does not tell, or tells in another way.
        """
        policy = context.bloom if context.populate_meta else None
        text, low, high = (footer.get(name) for name in (BLOOM, MINIMUM, MAXIMUM))
        if policy is None or not text or not low or not high:
            return None
        kind = footer.get(BLOOM_TYPE, SIMPLE)
        if kind != policy.kind:
            return None
        try:
            known = BloomFilter.decode(text, kind)
        except FormatError:
            return None
        made = cls(context, spawner=spawner)
        made._bloom = BloomBuilder.resumed(known, max_entries=policy.max_entries)
        bounds = key_bounds(pa.array([low, high], pa.string()))
        made._bounds = bounds
        return made

    def add(self, keys: pa.Array) -> None:
        """Take the record keys of the next rows of the file."""
        if not self._populated or not len(keys):
            return
        self._wait()
        bloom = self._bloom
        if bloom is not None and self._spawner is not None:
            self._running = self._spawner.spawn(lambda: bloom.add(keys), name="bloom filter")
        elif bloom is not None:
            bloom.add(keys)
        low, high = key_bounds(keys)
        if self._bounds is not None:
            low, high = min(low, self._bounds[0]), max(high, self._bounds[1])
        self._bounds = low, high

    def values(self) -> dict[str, str]:
        """Key/value pairs of the footer."""
        self._wait()
        values = {AVRO_SCHEMA: self._context.avro_schema, MODEL: "avro"}
        if self._bloom is not None:
            values[BLOOM] = self._bloom.finish().encode()
            if self._kind == DYNAMIC:
                values[BLOOM_TYPE] = DYNAMIC
        if self._bounds is not None:
            low, high = _texts(self._bounds)
            values |= {MINIMUM: low, MAXIMUM: high}
        return values

    def _wait(self) -> None:
        if self._running is not None:
            running, self._running = self._running, None
            running.result()


@dataclass(frozen=True, slots=True, eq=False)
class JavaOrder:
    """Keys as bytes that compare as Java strings do."""

    keys: pa.Array

    def bounds(self) -> tuple[bytes, bytes]:
        """Least and greatest key."""
        found = pc.min_max(self.keys)
        return found["min"].as_py(), found["max"].as_py()

    def between(self, low: bytes, high: bytes) -> npt.NDArray[np.bool_]:
        """Which keys are neither below nor above two keys in UTF-8."""
        least, most = (bound.translate(_JAVA_BYTES) for bound in (low, high))
        inside = pc.and_(pc.greater_equal(self.keys, least), pc.less_equal(self.keys, most))
        found: npt.NDArray[np.bool_] = inside.to_numpy(zero_copy_only=False)
        return found


def in_java_order(keys: pa.Array) -> JavaOrder:
    """Keys in a form that can be compared with bounds in footers."""
    rows = ByteRows.of(keys)
    if len(rows.data) and int(rows.data.max()) >= _PRIVATE_USE:
        offsets = np.append(rows.starts, rows.starts[-1:] + rows.lengths[-1:])
        moved = pa.py_buffer(_JAVA_ORDER[rows.data])
        buffers = [None, pa.py_buffer(offsets), moved]
        keys = pa.Array.from_buffers(pa.large_binary(), len(keys), buffers)
    return JavaOrder(keys.cast(pa.binary()))


def key_bounds(keys: pa.Array) -> tuple[bytes, bytes]:
    """Least and greatest key in Java's order, as bytes that compare in that order."""
    return in_java_order(keys).bounds()


def text_bounds(texts: pa.Array) -> tuple[str, str]:
    """Least and greatest text in Java's order."""
    return _texts(key_bounds(texts))


def _texts(bounds: tuple[bytes, bytes]) -> tuple[str, str]:
    low, high = (bound.translate(_UTF8_BYTES).decode() for bound in bounds)
    return low, high
