"""Every reader of the product that meets bytes from storage, as a target of the fuzzer."""

from __future__ import annotations

from typing import Final

from lakewright.testing.fuzz.judging import Target
from lakewright.testing.fuzz.targets import (
    avro,
    deletes,
    filters,
    hfiles,
    logs,
    parquet,
    tables,
    texts,
    timelines,
)

__all__ = ["TARGETS"]

TARGETS: Final[dict[str, Target]] = {
    target.name: target
    for module in (logs, deletes, hfiles, avro, parquet, timelines, texts, filters, tables)
    for target in module.TARGETS
}
"""All targets by name."""
