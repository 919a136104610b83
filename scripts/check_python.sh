#!/bin/sh
# Say clearly when the interpreter is absent or too old.
python=${1:-python3}
if ! command -v "$python" >/dev/null 2>&1; then
  echo "lakewright needs Python 3.11 or newer, and '$python' was not found." >&2
  echo "Install it (Debian: apt-get install python3 python3-venv), or name one: make PYTHON=/path/to/python setup" >&2
  exit 1
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  echo "lakewright needs Python 3.11 or newer; '$python' is $("$python" --version 2>&1)." >&2
  echo "Name a newer one: make PYTHON=/path/to/python3.11 setup" >&2
  exit 1
fi
