"""Tables that keep change data: each type and logging mode on each table version.

One history has all that changes rows: inserts, updates, deletes, an overwrite, and a compaction
where there are logs; the other columns are tried where both images are logged. The rest of the
change queries runs on the tables of the corpus.
"""

from __future__ import annotations

from interop.cases import Case, Step, TableType
from interop.histories import COMPACT, Maker
from interop.special_cases import build

MODES = ("op_key_only", "data_before", "data_before_after")


def change_cases() -> list[Case]:
    """Every case of this module."""
    kinds: list[tuple[int, TableType]] = [(v, t) for v in (6, 8, 9) for t in ("cow", "mor")]
    plain = [_case(v, t, mode) for v, t in kinds for mode in MODES]
    typed = [_case(v, "cow", MODES[-1], columns=c) for v in (6, 8, 9) for c in ("flat", "nested")]
    logged = [_case(v, "mor", MODES[-1], columns="flat", merge="commit") for v in (6, 8, 9)]
    return [*plain, *typed, *logged]


def _case(version: int, type_: TableType, mode: str, **traits: str) -> Case:
    name = "_".join(["cdc", mode, *traits.values()])
    options = {
        "hoodie.table.cdc.enabled": "true",
        "hoodie.table.cdc.supplemental.logging.mode": mode,
    }
    return build(version, type_, name, _steps, options=options, **traits)


def _steps(m: Maker) -> list[Step]:
    compacting = COMPACT if m.traits.type == "mor" else {}
    return [
        m.first(),
        m.update(1),
        m.update(2, compacting),  # Hudi 1.0 cannot compact the deletes that come next
        m.delete([1, 4]),
        m.write("insert_overwrite", m.rows(range(0, 30, 6), 4, lambda _: 100)),
        m.update(3),
    ]
