"""The lock key that Hudi derives from a table's base path, where none is configured.

Hudi hashes the text of its option `hoodie.base.path`, `s3a:` written as `s3:` and without slashes
at its end: two spellings of one place are two locks. A writer that shares a table with Hudi must
use Hudi's spelling. (Releases before 1.2 kept slashes and blanks at the end of the text.)
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
    text = re.sub(r"^s3a://", "s3://", base_path.strip(_BLANKS), flags=re.IGNORECASE)
    text = text.rstrip("/" + _BLANKS)
    if not text or (text.endswith(":") and "/" not in text):
        raise ConfigError(
            f"The base path {base_path!r} cannot be locked: it names no folder.",
            hint="Give the table's folder as hoodie.base.path.",
        )
    return f"{int(xxh64(pa.array([text.encode()]), _SEED)[0]):016X}"
