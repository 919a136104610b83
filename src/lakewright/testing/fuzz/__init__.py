"""The fuzzer: damaged files of every kind against every reader, repeatably.

Seeds are small real files and files of our own encoders; mutants that reach new code become parents
of others. Each mutant must be read correctly as far as it is sound, or be refused with an error
that names the file and the offset; never may it end the process, hang, take memory without bound or
give a row that is not in the bytes. A finding is replayed by one command line.

    python -m lakewright.testing.fuzz --files 100000 --seed 1 --jobs 2 --state run.json
    python -m lakewright.testing.fuzz --replay log 'made:log-avro@1234'

`judging` says what is right, `targets` what is read and against which oracle, `mutators` what is
done to bytes, `fuzzing` runs mutants in one process, `runner` watches processes that do, `report`
counts.
"""

from __future__ import annotations

from lakewright.testing.fuzz.corpus import Corpus, Seed
from lakewright.testing.fuzz.fuzzing import Finding, Fuzzer, Memory, Recipe
from lakewright.testing.fuzz.judging import Case, Kind, Limits, Outcome, Target, ViolationError
from lakewright.testing.fuzz.report import Report, Tally
from lakewright.testing.fuzz.runner import Plan, find_target, run_plan

__all__ = [
    "Case",
    "Corpus",
    "Finding",
    "Fuzzer",
    "Kind",
    "Limits",
    "Memory",
    "Outcome",
    "Plan",
    "Recipe",
    "Report",
    "Seed",
    "Tally",
    "Target",
    "ViolationError",
    "find_target",
    "run_plan",
]
