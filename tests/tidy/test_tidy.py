"""The style of the house, held by tests."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "lakewright"
MODULES = sorted(SOURCE.rglob("*.py"))

MODULE_LINES_MAX = 600
FUNCTION_LINES_MAX = 60
IO_ROOMS = ("runtime", "storage", "testing")
BANNED_CALLS = {
    "time.time": "take a Clock",
    "time.sleep": "take a Clock",
    "time.monotonic": "take a Clock",
    "datetime.now": "take a Clock",
    "datetime.datetime.now": "take a Clock",
    "datetime.utcnow": "take a Clock",
    "date.today": "take a Clock",
    "uuid.uuid4": "take a Random",
    "uuid4": "take a Random",
    "random.random": "take a Random",
    "os.urandom": "take a Random",
    "open": "take a Storage",
    "os.listdir": "take a Storage",
    "os.scandir": "take a Storage",
}
TRACKED_BYTES_MAX = 1 << 20


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_name(node.value)}.{node.attr}"
    return "?"


@pytest.fixture(scope="module")
def sources() -> dict[str, tuple[str, ast.Module]]:
    """Text and tree of every module, by its path in the package."""
    texts = {str(m.relative_to(SOURCE)): m.read_text() for m in MODULES}
    return {name: (text, ast.parse(text)) for name, text in texts.items()}


Sources = dict[str, tuple[str, ast.Module]]


def test_modules_are_short_and_say_their_contract(sources: Sources) -> None:
    long = [n for n, (text, _) in sources.items() if len(text.splitlines()) > MODULE_LINES_MAX]
    mute = [n for n, (_, tree) in sources.items() if len(ast.get_docstring(tree) or "") <= 20]
    assert (long, mute) == ([], [])


def test_functions_are_short_and_public_ones_are_documented(sources: Sources) -> None:
    problems = [f"{n}: {told}" for n, (_, tree) in sources.items() for told in _faults(tree)]
    assert problems == []


def _faults(tree: ast.Module) -> Iterator[str]:
    for owner in [tree, *[n for n in ast.walk(tree) if isinstance(n, ast.ClassDef)]]:
        private_owner = isinstance(owner, ast.ClassDef) and owner.name.startswith("_")
        for node in owner.body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            public = not node.name.startswith("_") and not private_owner
            if public and ast.get_docstring(node) is None and not _is_overload(node):
                yield f"{node.name}:{node.lineno} has no docstring"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                yield f"{node.name}:{node.lineno} has {length} lines"


def _is_overload(node: ast.AST) -> bool:
    return any(
        _name(d).endswith(("overload", ".setter")) for d in getattr(node, "decorator_list", [])
    )


def test_time_randomness_and_files_are_parameters(sources: Sources) -> None:
    calls = [
        f"{name}: {_name(node.func)}:{node.lineno} ({BANNED_CALLS[_name(node.func)]})"
        for name, (_, tree) in sources.items()
        if Path(name).parts[0] not in IO_ROOMS
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _name(node.func) in BANNED_CALLS
    ]
    assert calls == []


def test_versions_are_asked_by_capability(sources: Sources) -> None:
    comparison = re.compile(r"version(\.number)?\s*(>=|<=|==|!=|>|<)\s*[0-9]")
    table_version = [
        f"{name}: {line.strip()}"
        for name, (text, _) in sources.items()
        if name != "format/version.py"
        for line in text.splitlines()
        if comparison.search(line) and re.search(r"table_version|\.number", line)
    ]
    assert table_version == []


def test_no_module_is_a_drawer() -> None:
    drawers = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert [m for m in MODULES if m.stem in drawers or m.parent.name in drawers] == []


def test_every_error_has_its_own_code_and_is_exported() -> None:
    from lakewright import errors

    kinds = [v for v in vars(errors).values() if isinstance(v, type) and issubclass(v, Exception)]
    codes = [k.code for k in kinds]
    assert len(set(codes)) == len(codes)
    assert sorted(k.__name__ for k in kinds) == sorted(errors.__all__)


def test_every_error_code_is_documented() -> None:
    from lakewright import errors

    text = (ROOT / "docs" / "errors.md").read_text()
    missing = [
        v.code
        for v in vars(errors).values()
        if isinstance(v, type) and issubclass(v, Exception) and f"`{v.code}`" not in text
    ]
    assert missing == []


def test_tracked_files_speak_only_of_the_project() -> None:
    here = "|".join(re.escape(f"{p}/") for p in (ROOT, ROOT.parent / "shared", Path.home()))
    banned = re.compile(rf"{here}|issue #?\d|TODO(?!\(#)|FIXME")
    listed = tracked("*.py", "*.md", "*.toml", "*.sh", "Makefile", ".ci/run")
    found = [
        f"{name}:{number}"
        for name in listed
        if name != "tests/tidy/test_tidy.py" and (ROOT / name).exists()
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1)
        if banned.search(line)
    ]
    assert found == []


def test_tracked_files_are_small() -> None:
    sizes = {n: (ROOT / n).stat().st_size for n in tracked() if (ROOT / n).exists()}
    assert {name: size for name, size in sizes.items() if size > TRACKED_BYTES_MAX} == {}


def tracked(*patterns: str) -> list[str]:
    """Names of the files that git keeps; none outside of a clone."""
    listed = subprocess.run(
        ["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return listed.stdout.split()
