"""What is wrong with a metadata table: by our verification, and by Hudi's own procedure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import lakewright as lw
from interop.hudi import Hudi, HudiRefusedError
from lakewright.metadata.verification import Difference

SHOWN = 3


def our_differences(table: lw.Table, is_known: Callable[[Difference], bool]) -> str:
    """What lakewright finds besides what is known, in words; empty: nothing."""
    opened = table.snapshot().opened
    if opened.metadata is None:
        return f"no metadata table: {opened.warnings.told}"
    found = (f for f in table.metadata.verify() if isinstance(f, Difference))
    return _told([str(f.to_dict()) for f in found if not is_known(f)])


def their_differences(hudi: Hudi, path: Path, name: str) -> str:
    """What Hudi finds, in words; empty: nothing. The table is known to it by a name."""
    registered = hudi.register(path, name)
    asked = f"call validate_metadata_table_files(table => '{registered}', verbose => true)"
    try:
        rows = hudi.query(asked)
    except HudiRefusedError as error:
        return f"{error}\n{error.trace[-3000:]}"
    return _told([str(row) for row in rows if _differs(row)])


def _differs(row: Mapping[str, Any]) -> bool:
    seen = [row.get(f"is_present_in_{place}") for place in ("fs", "metadata")]
    sizes = [row.get(f"{place}_size") for place in ("fs", "metadata")]
    return seen != [True, True] or sizes[0] != sizes[1]


def _told(found: Sequence[str]) -> str:
    if not found:
        return ""
    return f"{len(found)} differences, first: {'; '.join(sorted(found)[:SHOWN])}"
