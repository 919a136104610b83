"""Make the environments of other Spark versions than that of `.venv`: `.venv-spark35`.

    python scripts/spark_env.py [35]

Run it with any Python 3.11 or newer; it only uses the standard library. Each environment holds what
its lock file says and the project itself, editable. It does nothing when everything is there
(`.complete` holds the digest of the lock file and of the project's description).

Ends with a message and status 1 when Java is missing or too old, or an installation fails.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SPARKS = ("35",)
MINIMUM_JAVA = 17


def main(asked: list[str]) -> int:
    """Make what is missing; the exit status."""
    try:
        require_java()
        for spark in asked or SPARKS:
            make_venv(spark)
    except EnvironmentProblemError as problem:
        print(f"spark_env: {problem}", file=sys.stderr)
        return 1
    return 0


class EnvironmentProblemError(Exception):
    """Something outside the project keeps the environment from being made."""


def require_java() -> None:
    """Fail with a hint unless a Java that both Sparks run on is on the path."""
    hint = "Spark 4 needs Java 17 or newer; on Debian: apt-get install openjdk-17-jre-headless"
    if shutil.which("java") is None:
        raise EnvironmentProblemError(f"there is no java. {hint}")
    shown = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(\d+)', shown.stderr)
    if found is None or int(found[1]) < MINIMUM_JAVA:
        raise EnvironmentProblemError(f"this java is too old. {hint}")


def make_venv(spark: str) -> None:
    """Make `.venv-spark<spark>` as its lock file says."""
    if spark not in SPARKS:
        raise EnvironmentProblemError(f"{spark!r} is not one of: {', '.join(SPARKS)}")
    lock = ROOT / "requirements" / f"spark{spark}.lock"
    folder = ROOT / f".venv-spark{spark}"
    described = lock.read_bytes() + (ROOT / "pyproject.toml").read_bytes()
    digest = hashlib.sha256(described).hexdigest()
    stamp = folder / ".complete"
    if stamp.exists() and stamp.read_text() == digest:
        return
    print(f"spark_env: making {folder.name}")
    if not (folder / "bin" / "python").exists():
        venv.create(folder, with_pip=True, clear=True)
    install = (str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet")
    run(*install, "--disable-pip-version-check", "-r", str(lock))
    run(*install, "--disable-pip-version-check", "--no-deps", "-e", str(ROOT))
    stamp.write_text(digest)


def run(*command: str) -> None:
    """Run a command; its output is shown only when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise EnvironmentProblemError(f"{' '.join(command[:4])} … failed:\n{tail}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
