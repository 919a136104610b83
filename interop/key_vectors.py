"""Record what Java and Hudi's own key generators make of many values, for the tests of our kernels.

    python -m interop.key_vectors        writes tests/format/key_vectors.tsv

The values are chosen in `KeyVectors.java`, with a fixed seed; the JVM's zone is UTC. Java 17 and
the jars of real Hudi must be there (`scripts/hudi_env.py`).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from interop.hudi import JARS, PYTHON, ROOT

PROGRAM = Path(__file__).with_name("KeyVectors.java")
VECTORS = ROOT / "tests" / "format" / "key_vectors.tsv"
HUDI = "1.0.2"


def main() -> int:
    """The command; its exit status."""
    spark = next(PYTHON.parents[1].glob("lib/python*/site-packages/pyspark/jars"))
    jars = [JARS / f"hudi-spark3.5-bundle_2.12-{HUDI}.jar", f"{spark}/*"]
    command = ["java", "-Duser.timezone=UTC", "-Duser.language=en", "-Dfile.encoding=UTF-8"]
    command += ["-cp", ":".join(map(str, jars)), str(PROGRAM)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        print(made.stderr[-2000:])
        return 1
    VECTORS.write_text(made.stdout)
    print(f"{len(made.stdout.splitlines())} vectors")
    return 0


if __name__ == "__main__":
    sys.exit(main())
