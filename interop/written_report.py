"""The document of what lakewright wrote and who read it: case × step × reader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from interop.deviations import Deviation
from interop.written_cases import WrittenCase

MARKS = {"equal": "✓", "different": "✗"}


@dataclass(frozen=True)
class Answer:
    """What one reader made of one step of one table."""

    case: WrittenCase
    step: str
    reader: str
    outcome: str  # equal, accepted, different
    told: str
    reason: str = ""


def write_document(answers: Sequence[Answer], deviations: Sequence[Deviation], file: Path) -> None:
    """Write the document."""
    notes = {d.name: number for number, d in enumerate((d for d in deviations if d.uses), 1)}
    lines = [
        "# Tables that lakewright writes, read by others",
        "",
        "Made by `make interop`. Each table goes through the steps from top to bottom; after every",
        "step the content must be what the operations mean (*model*), and each reader must give",
        "the same rows as lakewright, cell for cell, types and meta columns included. ✓ equal,",
        "✗ different, a number: an accepted difference, explained below; empty: not asked.",
        "",
    ]
    for case in dict.fromkeys(a.case for a in answers):
        lines += _section(case, [a for a in answers if a.case == case], notes)
    lines += ["## Accepted differences", ""]
    for d in deviations:
        if d.uses:
            lines.append(f"{notes[d.name]}. **{d.name}** (right: {d.right}). {d.reason}")
    file.write_text("\n".join(lines) + "\n")


def _section(case: WrittenCase, answers: Sequence[Answer], notes: dict[str, int]) -> list[str]:
    readers = list(dict.fromkeys(a.reader for a in answers if "(writer)" not in a.reader))
    kind = {"cow": "Copy-on-Write", "mor": "Merge-on-Read"}[case.type]
    head = f"## {kind}, version {case.version}, {case.keys} keys, {case.paths} paths"
    lines = [head, "", "| step | " + " | ".join(readers) + " |", "|---" * (len(readers) + 1) + "|"]
    for step in dict.fromkeys(a.step for a in answers):
        by_reader = {a.reader: a for a in answers if a.step == step}
        cells = [_cell(by_reader.get(reader), notes) for reader in readers]
        lines.append(f"| {step} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def _cell(answer: Answer | None, notes: dict[str, int]) -> str:
    if answer is None:
        return ""
    return MARKS.get(answer.outcome) or str(notes[answer.reason])
