"""The fuzzer: damaged files of every kind against every reader, repeatably.

Seeds are small real files and files of our own encoders; mutants that reach new code become parents
of others. Each mutant must be read correctly as far as it is sound, or be refused with an error
that names the file; never may it end the process, hang, take memory without bound or give a row
that is not in the bytes. A finding is replayed by one command line.

    python -m lakewright.testing.fuzz --seconds 60 --files 20000 --seed 1 --target log
    python -m lakewright.testing.fuzz --replay log 'made:log-avro@1234'

`judging` says what is right, `targets` what is read, `mutators` what is done to bytes, `fuzzing`
runs mutants in one process, `runner` watches processes that do.
"""

from __future__ import annotations

from lakewright.testing.fuzz.corpus import Corpus, Seed
from lakewright.testing.fuzz.fuzzing import Finding, Fuzzer, Recipe
from lakewright.testing.fuzz.judging import Case, Kind, Limits, Outcome, Target, ViolationError
from lakewright.testing.fuzz.runner import Plan, Report, Tally, find_target, run_plan

__all__ = [
    "Case",
    "Corpus",
    "Finding",
    "Fuzzer",
    "Kind",
    "Limits",
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
