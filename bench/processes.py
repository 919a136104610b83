"""Warm processes that work when asked, one at a time, measured from outside.

A process runs a program of `bench/workloads` in the environment of its contenders and is idle while
another one is measured. CPU and resident memory are those of the whole session: the driver, its JVM
and its Python workers; memory is looked at every fifth of a second while a request is worked on,
and the largest sum counts.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from bench.contest import Sample

ROOT = Path(__file__).resolve().parents[1]
BUNDLE = "hudi-spark3.5-bundle_2.12-{}.jar"
TICKS = os.sysconf("SC_CLK_TCK")
PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 2**20
NEWEST = "newest"
HOMES = {"spark35": ".venv-spark35", NEWEST: ".venv", "plain": ".venv"}
"""The environment of each process; every other home is a release of Hudi."""
LOOK_S = 0.2
ANSWER_S = 1800.0


class GoneError(Exception):
    """The process ended, or was ended because it took too long."""


class RefusedError(Exception):
    """The process answered with an error; it can be asked again."""


@dataclass(frozen=True)
class Contender:
    """Who does the work, and how."""

    name: str
    home: str
    """The process: an environment, or a release of Hudi."""
    how: str


class WarmProcess:
    """One process that answers requests."""

    def __init__(self, home: str, program: Path, work: Path) -> None:
        work.mkdir(parents=True)
        hudi = home not in HOMES
        python = ROOT / HOMES.get(home, ".venv-hudi") / "bin" / "python"
        jar = str(ROOT / ".cache" / "hudi-jars" / BUNDLE.format(home)) if hudi else "-"
        self.home, self._work = home, work
        self._command = [str(python), str(program), str(work), jar]
        self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        self._unread = b""
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                "PYSPARK_PYTHON": self._command[0],
                "SPARK_LOCAL_IP": "127.0.0.1",
                "TZ": "UTC",
            },
            start_new_session=True,
            cwd=self._work,
        )
        self._answer(ANSWER_S)  # it is ready
        return self._process

    def ask(self, request: Mapping[str, Any], *, seconds: float = ANSWER_S) -> Sample:
        """Let it do one thing; it is ended if that takes longer than `seconds`.

        A process that was ended is started again, and is cold then.
        """
        if self._process.poll() is not None:
            self._process = self._started()
        stdin = cast("IO[bytes]", self._process.stdin)
        with _watched(self._process.pid) as used:
            stdin.write(json.dumps(request).encode() + b"\n")
            stdin.flush()
            answer = self._answer(seconds)
        if "error" in answer:
            raise RefusedError(str(answer["error"]))
        result = answer["result"]
        return Sample(
            answer["seconds"],
            used.cpu_s,
            used.rss_mb,
            "" if result is None else str(result),
            used.python_mb,
        )

    def close(self) -> None:
        """End the process."""
        with suppress(BrokenPipeError):  # it was ended because it took too long
            cast("IO[bytes]", self._process.stdin).close()
        self._process.wait()

    def _answer(self, seconds: float) -> dict[str, Any]:
        stdout = cast("IO[bytes]", self._process.stdout)
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                if not selector.select(seconds):
                    os.killpg(self._process.pid, signal.SIGKILL)
                    self._process.wait()
                    raise GoneError(f"{self.home} took longer than {seconds:.0f} s")
                chunk = os.read(stdout.fileno(), 1 << 16)
                if not chunk:
                    tail = (self._work / "log").read_text(errors="replace")[-4000:]
                    raise GoneError(f"{self.home} ended:\n{tail}")
                self._unread += chunk
        line, self._unread = self._unread.split(b"\n", 1)
        return dict(json.loads(line))


@contextmanager
def warm(contenders: Sequence[Contender], program: Path) -> Iterator[dict[str, WarmProcess]]:
    """The processes of some contenders, by home."""
    folder = Path(tempfile.mkdtemp(prefix="lakewright-bench-"))
    made: dict[str, WarmProcess] = {}
    try:
        for home in dict.fromkeys(c.home for c in contenders):
            made[home] = WarmProcess(home, program, folder / home)
        yield made
    finally:
        for process in made.values():
            process.close()
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class _Used:
    """What a session used while it was watched."""

    cpu_s: float = 0.0
    rss_mb: float = 0.0
    python_mb: float = 0.0
    """Of `rss_mb`, what is not the JVM's."""


@contextmanager
def _watched(session: int) -> Iterator[_Used]:
    used, done = _Used(), threading.Event()
    before = _looked(session).cpu_s

    def look() -> _Used:
        seen = _looked(session)
        used.rss_mb = max(used.rss_mb, seen.rss_mb)
        used.python_mb = max(used.python_mb, seen.python_mb)
        return seen

    def watch() -> None:
        while not done.wait(LOOK_S):
            look()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield used
    finally:
        done.set()
        watcher.join()
        used.cpu_s = look().cpu_s - before


def _looked(session: int) -> _Used:
    used = _Used()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().rpartition(")")
        except OSError:
            continue  # it has just ended
        fields = rest.split()
        if int(fields[3]) != session:
            continue
        used.cpu_s += sum(map(int, fields[11:15])) / TICKS
        rss = int(fields[21]) * PAGE_MB
        used.rss_mb += rss
        used.python_mb += 0 if name.endswith("(java") else rss
    return used
