"""The document of a proof, what was done to tables and who read them: table × step × reader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from interop.deviations import Deviation
from interop.keyed_cases import KeyedCase

MARKS = {"equal": "✓", "different": "✗"}
MERGING = {
    (6, "commit"): "OverwriteWithLatestAvroPayload",
    (6, "event"): "DefaultHoodieRecordPayload",
    (6, "partial"): "PartialUpdateAvroPayload",
    (8, "commit"): "COMMIT_TIME_ORDERING",
    (8, "event"): "EVENT_TIME_ORDERING",
}


@dataclass(frozen=True)
class Answer:
    """What one reader made of one step of one table."""

    case: KeyedCase
    step: str
    reader: str
    outcome: str  # equal, accepted, different
    told: str
    reasons: tuple[str, ...] = ()


def write_document(
    head: Sequence[str], answers: Sequence[Answer], deviations: Sequence[Deviation], file: Path
) -> None:
    """Write the document; `head` are its first lines."""
    notes = {d.name: number for number, d in enumerate((d for d in deviations if d.uses), 1)}
    lines = [*head, ""]
    for case in dict.fromkeys(a.case for a in answers):
        lines += _section(case, [a for a in answers if a.case == case], notes)
    lines += ["## Accepted differences", ""]
    for d in deviations:
        if d.uses:
            lines.append(f"{notes[d.name]}. **{d.name}** (right: {d.right}). {d.reason}")
    file.write_text("\n".join(lines) + "\n")


def _section(case: KeyedCase, answers: Sequence[Answer], notes: dict[str, int]) -> list[str]:
    readers = list(dict.fromkeys(a.reader for a in answers if "(writer)" not in a.reader))
    lines = [
        f"## {case.title}",
        "",
        f"{case.keys} keys, {case.paths} paths, {MERGING[case.version, case.merge]}.",
        "",
        "| step | " + " | ".join(readers) + " |",
        "|---" * (len(readers) + 1) + "|",
    ]
    for step in dict.fromkeys(a.step for a in answers):
        by_reader = {a.reader: a for a in answers if a.step == step}
        cells = [_cell(by_reader.get(reader), notes) for reader in readers]
        lines.append(f"| {step} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def _cell(answer: Answer | None, notes: dict[str, int]) -> str:
    if answer is None:
        return ""
    return MARKS.get(answer.outcome) or ", ".join(str(notes[name]) for name in answer.reasons)
