"""Make the environment of real Hudi: `.venv-hudi` with Spark 3.5, and the Hudi bundles as jars.

Run it with any Python 3.11 or newer; it only uses the standard library. It does nothing when
everything is there (`.venv-hudi/.complete` holds the digest of the lock file, `.cache/hudi-jars`
the three jars). Jars come through Maven where `mvn` is installed, otherwise through Spark's own
resolver; both follow the settings of the machine for where packages come from.

Ends with a message and status 1 when Java is missing or a download fails.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv-hudi"
JARS = ROOT / ".cache" / "hudi-jars"
LOCK = ROOT / "requirements" / "hudi.lock"
GROUP = "org.apache.hudi"
ARTIFACT = "hudi-spark3.5-bundle_2.12"
VERSIONS = ("0.15.0", "1.0.2", "1.2.0")
MINIMUM_JAVA = 11


def main() -> int:
    """Make what is missing; the exit status."""
    try:
        require_java()
        make_venv()
        for version in VERSIONS:
            make_jar(version)
    except EnvironmentProblemError as problem:
        print(f"hudi_env: {problem}", file=sys.stderr)
        return 1
    return 0


class EnvironmentProblemError(Exception):
    """Something outside the project keeps the environment from being made."""


def require_java() -> None:
    """Fail with a hint unless a Java that Spark 3.5 runs on is on the path."""
    hint = "Spark 3.5 needs Java 11 or 17; on Debian: apt-get install openjdk-17-jre-headless"
    if shutil.which("java") is None:
        raise EnvironmentProblemError(f"there is no java. {hint}")
    shown = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(\d+)', shown.stderr)
    if found is None or int(found[1]) < MINIMUM_JAVA:
        raise EnvironmentProblemError(f"this java is too old. {hint}")


def make_venv() -> None:
    """Make `.venv-hudi` as the lock file says."""
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    stamp = VENV / ".complete"
    if stamp.exists() and stamp.read_text() == digest:
        return
    print("hudi_env: making .venv-hudi")
    venv.create(VENV, with_pip=True, clear=True)
    run(str(VENV / "bin" / "python"), "-m", "pip", "install", "--quiet", "-r", str(LOCK))
    stamp.write_text(digest)


def make_jar(version: str) -> None:
    """Put one Hudi bundle under `.cache/hudi-jars`."""
    target = jar_path(version)
    if target.exists():
        return
    print(f"hudi_env: getting the bundle of Hudi {version}")
    source = jar_by_maven(version) if shutil.which("mvn") else jar_by_spark(version)
    JARS.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".partial")
    shutil.copyfile(source, partial)
    partial.rename(target)


def jar_path(version: str) -> Path:
    """Where the bundle of a Hudi version lies."""
    return JARS / f"{ARTIFACT}-{version}.jar"


def jar_by_maven(version: str) -> Path:
    """The bundle in a Maven repository of the project's own, after Maven has brought it."""
    repository = ROOT / ".cache" / "maven"
    coordinates = f"{GROUP}:{ARTIFACT}:{version}"
    run(
        "mvn",
        "--quiet",
        "--batch-mode",
        f"-Dmaven.repo.local={repository}",
        "dependency:get",
        f"-Dartifact={coordinates}",
        "-Dtransitive=false",
    )
    folder = repository.joinpath(*GROUP.split("."), ARTIFACT, version)
    return folder / f"{ARTIFACT}-{version}.jar"


def jar_by_spark(version: str) -> Path:
    """The bundle in an Ivy cache of the project's own, after Spark's resolver has brought it."""
    ivy = ROOT / ".cache" / "ivy"
    program = (
        "import sys; from pyspark.sql import SparkSession; "
        "SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false')"
        ".config('spark.jars.ivy', sys.argv[1]).config('spark.jars.packages', sys.argv[2])"
        ".getOrCreate().stop()"
    )
    coordinates = f"{GROUP}:{ARTIFACT}:{version}"
    run(str(VENV / "bin" / "python"), "-c", program, str(ivy), coordinates)
    return ivy / "jars" / f"{GROUP}_{ARTIFACT}-{version}.jar"


def run(*command: str) -> None:
    """Run a command; its output is shown only when it fails."""
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT
    )
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise EnvironmentProblemError(f"{' '.join(command[:3])} … failed:\n{tail}")


if __name__ == "__main__":
    sys.exit(main())
