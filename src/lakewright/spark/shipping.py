"""Getting lakewright to Spark's workers, and finding out what they lack.

On one machine the workers run the driver's interpreter and have everything. On a cluster the
package travels as a zip; the compiled packages below it (pyarrow, numpy, isal) and pydantic cannot
travel so and must be installed where the workers run. `probe` asks real workers what they have,
without needing lakewright there, and `require_workers` turns what is missing into an error that
says what to install and where.
"""

from __future__ import annotations

import io
import os
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from importlib import resources
from importlib.resources.abc import Traversable

from pyspark import SparkFiles
from pyspark.sql import SparkSession

import lakewright
from lakewright.errors import AlreadyExistsError, MissingDependencyError
from lakewright.storage.resolve import open_storage

__all__ = ["WorkerReport", "package_zip", "probe", "require_workers", "ship_package"]

PACKAGE = "lakewright"
NEEDED = (PACKAGE, "isal", "numpy", "pyarrow", "pydantic")
"""What reading in a worker imports."""
LEFT_HERE = ("__pycache__", "cli", "testing")
"""Folders of the package that no worker imports."""
PATH_VARIABLE = "PYTHONPATH"
PROBES_PER_CORE = 2
PROBES_MAX = 64
_FIXED_DATE = (1980, 1, 1, 0, 0, 0)

_Report = tuple[str, str, dict[str, str | None], str | None]


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """What one worker process has."""

    host: str
    python: str
    """Path of the interpreter."""
    versions: dict[str, str | None]
    """By package; None if it cannot be imported."""
    location: str | None
    """Where lakewright was imported from."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Packages that the worker lacks."""
        return tuple(name for name, version in self.versions.items() if version is None)


def package_zip() -> tuple[str, bytes]:
    """The installed package as a zip, and its name, which changes with its content."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(_files(resources.files(PACKAGE), PACKAGE)):
            archive.writestr(zipfile.ZipInfo(name, _FIXED_DATE), data)
    content = sink.getvalue()
    digest = sha256(content).hexdigest()[:12]
    return f"{PACKAGE}-{lakewright.__version__}-{digest}.zip", content


def _files(folder: Traversable, path: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        name = f"{path}/{entry.name}"
        if entry.is_dir():
            if entry.name not in LEFT_HERE:
                yield from _files(entry, name)
        else:
            yield name, entry.read_bytes()


def ship_package(spark: SparkSession) -> str:
    """Send the installed package to all workers of a session; the zip's path on the driver.

    It lies among the session's own files, which Spark removes; a second call finds it there.
    """
    name, content = package_zip()
    folder = SparkFiles.getRootDirectory()
    path = f"{folder}/{name}"
    try:
        open_storage(folder).create_if_absent(name, content)
    except AlreadyExistsError:
        return path
    context = spark.sparkContext
    context.addPyFile(path)
    # Processes on the driver's machine that plan streams are not given what was added.
    known = context.environment.get(PATH_VARIABLE)
    context.environment[PATH_VARIABLE] = f"{path}{os.pathsep}{known}" if known else path
    return path


def probe(spark: SparkSession) -> list[WorkerReport]:
    """Ask workers what they have; one report per distinct host and interpreter.

    Runs a small job, which waits until the cluster gives the session an executor.
    """
    context = spark.sparkContext
    slots = min(PROBES_MAX, max(1, context.defaultParallelism) * PROBES_PER_CORE)
    found = context.parallelize(range(slots), slots).mapPartitions(_report_function()).collect()
    reports = {(report[0], report[1]): WorkerReport(*report) for report in found}
    return [reports[key] for key in sorted(reports)]


def require_workers(spark: SparkSession) -> list[WorkerReport]:
    """The workers' reports; `MissingDependencyError` if one cannot read tables."""
    reports = probe(spark)
    for report in reports:
        if report.missing:
            raise MissingDependencyError(
                f"Spark's Python workers on {report.host} lack {', '.join(report.missing)}.",
                hint=f"Install it there (here: {_installed(report.missing)}) for the interpreter "
                f"{report.python}, or name another one with "
                'session(config={"spark.pyspark.python": ...}), or ship an environment with '
                "spark.archives.",
                context={"host": report.host, "python": report.python},
            )
    return reports


def _installed(packages: Iterable[str]) -> str:
    here = [f"{p}=={getattr(sys.modules.get(p), '__version__', '?')}" for p in packages]
    return " ".join(here)


def _report_function() -> Callable[[Iterable[int]], Iterable[_Report]]:
    """A function that is pickled by value, because a worker may lack the module it comes from."""
    needed, own = NEEDED, PACKAGE

    def report(_: Iterable[int]) -> Iterable[_Report]:
        import importlib
        import socket
        import sys

        versions: dict[str, str | None] = {}
        location = None
        for name in needed:
            try:
                module = importlib.import_module(name)
            except ImportError:
                versions[name] = None
                continue
            versions[name] = str(getattr(module, "__version__", "unknown"))
            if name == own:
                location = getattr(module, "__file__", None)
        return [(socket.gethostname(), sys.executable, versions, location)]

    return report
