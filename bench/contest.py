"""Contests: contenders run interleaved, each in a fresh process, and must agree on the result.

A workload module offers `CONTENDERS: dict[str, Callable[[dict], object]]` and `check(result) ->
str`. The child process times one call (imports and set-up excluded by `prepare`), then checks.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULTS = Path("bench/results")


@dataclass(frozen=True)
class Sample:
    """One timed call."""

    wall_s: float
    cpu_s: float
    rss_mb: float
    check: str
    python_mb: float = 0.0
    """Of a warm process with a JVM: resident memory of the rest, its Python workers above all."""


def run_child(workload: str, contender: str, params: Mapping[str, Any], *, cores: int) -> Sample:
    """Time one contender in a fresh process, pinned to the first `cores` cores."""
    command = [sys.executable, "-m", "bench.contest", workload, contender, json.dumps(params)]
    pin = ["taskset", "-c", f"0-{cores - 1}"] if cores and hasattr(os, "sched_setaffinity") else []
    out = subprocess.run([*pin, *command], capture_output=True, text=True, check=False)
    if out.returncode:
        raise SystemExit(f"{workload}/{contender} failed:\n{out.stderr[-3000:]}")
    return Sample(**json.loads(out.stdout.splitlines()[-1]))


def contest(
    workload: str,
    contenders: Sequence[str],
    params: Mapping[str, Any],
    *,
    repeat: int,
    cores: int = 2,
) -> dict[str, list[Sample]]:
    """Run the contenders A B C A B C …; refuse to report when results differ."""
    samples: dict[str, list[Sample]] = {c: [] for c in contenders}
    for _ in range(repeat):
        for contender in contenders:
            samples[contender].append(run_child(workload, contender, params, cores=cores))
    checks = {c: {s.check for s in ss} - {""} for c, ss in samples.items()}
    answers = set().union(*checks.values())
    if len(answers) > 1:
        raise SystemExit(f"{workload}: contenders disagree: {checks}")
    return samples


def median(samples: Sequence[Sample], what: str = "wall_s") -> float:
    """The median of one measure."""
    return float(statistics.median(getattr(s, what) for s in samples))


def record(name: str, params: Mapping[str, Any], samples: Mapping[str, Sequence[Sample]]) -> None:
    """Append the raw samples to the results file."""
    import numpy as np
    import pyarrow as pa

    RESULTS.mkdir(parents=True, exist_ok=True)
    revision = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    line = {
        "name": name,
        "revision": revision,
        "python": platform.python_version(),
        "pyarrow": pa.__version__,
        "numpy": np.__version__,
        "cores": os.cpu_count(),
        "params": dict(params),
        "samples": {c: [vars(s) for s in ss] for c, ss in samples.items()},
    }
    with (RESULTS / "samples.jsonl").open("a") as out:
        out.write(json.dumps(line) + "\n")


def main() -> None:
    """Child process: `python -m bench.contest WORKLOAD CONTENDER PARAMS`."""
    workload, contender, params_text = sys.argv[1:4]
    module = importlib.import_module(f"bench.workloads.{workload}")
    params = json.loads(params_text)
    call = module.CONTENDERS[contender](params)
    wall, cpu = time.perf_counter(), time.process_time()
    result = call()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(vars(Sample(wall, cpu, peak, module.check(result)))))


if __name__ == "__main__":
    main()
