"""The lock key that Hudi derives from a table's base path, where none is configured.

Hudi hashes the text of its option `hoodie.base.path`, with `s3a:` written as `s3:`: two spellings
of one place are two locks, so a writer that shares a table with Hudi must use Hudi's spelling. A
text with slashes or blanks at its end is refused, because Hudi's releases differ about it.
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa

from lakewright.codec.hashing import xxh64
from lakewright.errors import ConfigError

__all__ = ["implicit_lock_key"]

_SEED: Final = 0xFFFFFFFFDABADABA
_BLANKS: Final = "".join(map(chr, range(33)))
"""What Java trims."""


def implicit_lock_key(base_path: str) -> str:
    """The sixteen hexadecimal digits that stand for a base path."""
    text = re.sub(r"^s3a://", "s3://", base_path, flags=re.IGNORECASE)
    if not text or text != text.strip(_BLANKS) or text.endswith("/"):
        raise ConfigError(
            f"No lock can be derived from the base path {base_path!r}.",
            hint="Give hoodie.base.path without slashes or blanks at its end, to Hudi's writers "
            "too, or name the lock's place with a provider that has one.",
            context={"option": "hoodie.base.path"},
        )
    return f"{int(xxh64(pa.array([text.encode()]), _SEED)[0]):016X}"
