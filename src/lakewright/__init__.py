"""lakewright: a Hudi-format lakehouse engine in Python.

>>> import lakewright as lw
>>> table = lw.Table.open("/data/trips")                                     # doctest: +SKIP
>>> table.scan(columns=["id", "city"], where="city = 'sf'").to_arrow()       # doctest: +SKIP
"""

from __future__ import annotations

from lakewright.engine.change_offset import ChangeOffset
from lakewright.engine.changes import Changes
from lakewright.engine.new_table import NewTable
from lakewright.engine.options import ReadOptions
from lakewright.engine.scan import Scan
from lakewright.engine.scan_plan import ScanPlan
from lakewright.engine.write_options import WriteOptions
from lakewright.engine.write_result import WriteResult
from lakewright.errors import LakewrightError
from lakewright.expr import col, lit
from lakewright.merge.protocol import MergeContext, Merged, RecordMerger, RecordType, Take
from lakewright.merge.user import merger
from lakewright.storage.options import StorageOptions
from lakewright.table import Table

__version__ = "0.1.0.dev0"

__all__ = [
    "ChangeOffset",
    "Changes",
    "LakewrightError",
    "MergeContext",
    "Merged",
    "NewTable",
    "ReadOptions",
    "RecordMerger",
    "RecordType",
    "Scan",
    "ScanPlan",
    "StorageOptions",
    "Table",
    "Take",
    "WriteOptions",
    "WriteResult",
    "__version__",
    "col",
    "lit",
    "merger",
]
