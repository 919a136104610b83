"""Real Hudi as an oracle: a client of one long-lived Hudi process.

    with Hudi("1.0.2") as hudi:
        hudi.steps(table_path, "name", [...])
        hudi.read(table_path, answer_path, {"hoodie.datasource.query.type": "read_optimized"})

The process starts with the first call and ends with the block. A call that Hudi refuses raises
`HudiRefusedError` and leaves the process usable; a process that dies or is silent longer than the
timeout raises `HudiGoneError` with the end of its log; the next call starts a new one. Calls from
several threads take turns. Needs `scripts/hudi_env.py` to have run.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, cast

ROOT = Path(__file__).resolve().parents[1]
PYTHON = ROOT / ".venv-hudi" / "bin" / "python"
JARS = ROOT / ".cache" / "hudi-jars"
PROGRAM = Path(__file__).with_name("hudi_process.py")
VERSIONS = ("0.15.0", "1.0.2", "1.2.0")
START_SECONDS = 300.0
CALL_SECONDS = 600.0
READ_THREADS = 2
LOG_TAIL = 4000


class HudiRefusedError(Exception):
    """Hudi answered a request with an exception; `trace` has the whole of it."""

    def __init__(self, message: str, trace: str = "") -> None:
        super().__init__(message)
        self.trace = trace


class HudiGoneError(Exception):
    """The process ended or did not answer in time."""


class Hudi:
    """One version of Hudi in a process of its own."""

    def __init__(self, version: str, *, call_seconds: float = CALL_SECONDS) -> None:
        self.version = version
        self.call_seconds = call_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._work = Path(tempfile.mkdtemp(prefix=f"hudi-{version}-"))
        self._unread = b""
        self._one_at_a_time = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process and remove its scratch folder."""
        process, self._process = self._process, None
        if process is not None:
            cast("IO[bytes]", process.stdin).close()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self._work, ignore_errors=True)

    # -- operations -------------------------------------------------------------------------

    def steps(
        self, path: Path, name: str, steps: Sequence[Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        """Run write steps on the table at a path."""
        return list(self.call("steps", path=str(path), name=name, steps=list(steps)))

    def read(self, path: Path, into: Path, options: Mapping[str, str]) -> int:
        """Query a table by path into one Parquet file; the number of rows."""
        return int(self.call("read", path=str(path), into=str(into), options=dict(options)))

    def read_many(self, asked: Sequence[tuple[Path, Path]]) -> list[str | None]:
        """Snapshots of tables into Parquet files; for each, what Hudi refused it with."""
        pairs = [[str(path), str(into)] for path, into in asked]
        return list(self.call("read_many", asked=pairs, threads=READ_THREADS))

    def query(self, sql: str, into: Path | None = None) -> Any:
        """Run SQL; rows as JSON values, or their number after storing them as Parquet."""
        return self.call("query", sql=sql, into=None if into is None else str(into))

    def register(self, path: Path, name: str) -> str:
        """Make a table known to SQL."""
        return str(self.call("register", path=str(path), name=name))

    def forget(self, name: str) -> None:
        """Drop a table's name and caches, not its files."""
        self.call("forget", name=name)

    # -- the pipe ---------------------------------------------------------------------------

    def call(self, operation: str, *, seconds: float | None = None, **arguments: Any) -> Any:
        """Send one request and wait for its answer."""
        line = json.dumps({"do": operation, **arguments}) + "\n"
        with self._one_at_a_time:
            stdin = cast("IO[bytes]", self._started().stdin)
            try:
                stdin.write(line.encode())
                stdin.flush()
            except BrokenPipeError:
                raise self._gone(f"Hudi {self.version} is gone before {operation}") from None
            return self._answer(operation, seconds or self.call_seconds)

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            jar = JARS / f"hudi-spark3.5-bundle_2.12-{self.version}.jar"
            if not (PYTHON.exists() and jar.exists()):
                raise HudiGoneError("real Hudi is not set up: run scripts/hudi_env.py")
            environment = {
                **os.environ,
                "PYSPARK_PYTHON": str(PYTHON),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "PYTHONHASHSEED": "0",
                "TZ": "UTC",
            }
            self._process = subprocess.Popen(
                [str(PYTHON), "-P", str(PROGRAM), str(jar), str(self._work)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                cwd=self._work,
            )
            self._answer("start", START_SECONDS)
        return self._process

    def _answer(self, operation: str, seconds: float) -> Any:
        process = cast("subprocess.Popen[bytes]", self._process)
        stdout = cast("IO[bytes]", process.stdout)
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                if not selector.select(seconds):
                    process.kill()
                    raise self._gone(
                        f"Hudi {self.version}: no answer to {operation} in {seconds} s"
                    )
                chunk = os.read(stdout.fileno(), 1 << 16)
                if not chunk:
                    raise self._gone(f"Hudi {self.version} ended during {operation}")
                self._unread += chunk
        line, self._unread = self._unread.split(b"\n", 1)
        answer = json.loads(line)
        if not answer["ok"]:
            raise HudiRefusedError(answer["error"], answer["trace"])
        return answer["result"]

    def _gone(self, message: str) -> HudiGoneError:
        log = self._work / "log"
        tail = log.read_text(errors="replace")[-LOG_TAIL:] if log.exists() else "(no log)"
        if self._process is not None:
            self._process.wait()
            self._process = None
        return HudiGoneError(f"{message}; the end of its log:\n{tail}")
