"""Changes of a table between two moments: changed rows, or what happened to each row.

`rows` are the latest versions inside the range of rows that an instant of the range wrote, as
Hudi's incremental query returns them; deleted rows do not show. `cdc` is one row per change with
the images before and after it, for tables that keep change data. Nothing but metadata is read until
rows are asked for. The order of rows is not defined, except that the changes of one file group come
in the order of their instants.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from lakewright.engine.arrow_result import ArrowResult
from lakewright.engine.cdc import CDC_SCHEMAS, CdcReader, Images, plan_cdc
from lakewright.engine.change_offset import ChangeOffset, Moment
from lakewright.engine.change_plan import ChangePlan, RowSlices, plan_rows, where_text
from lakewright.engine.change_range import ChangeRange, select_range
from lakewright.engine.options import ReadOptions
from lakewright.engine.runner import ThreadRunner
from lakewright.engine.slice_reader import SliceReader
from lakewright.engine.snapshot import Snapshot
from lakewright.errors import OptionError, UnsupportedTableError
from lakewright.expr import Expr, bind, parse
from lakewright.merge.registry import MergerRegistry
from lakewright.runtime.events import Event, EventHook, ignore_events

ChangeMode = Literal["rows", "cdc"]
CHANGE_MODES: tuple[ChangeMode, ...] = ("rows", "cdc")
