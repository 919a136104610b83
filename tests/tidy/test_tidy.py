"""The style of the house, held by tests."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "lakewright"
MODULES = sorted(SOURCE.rglob("*.py"))
IDS = [str(m.relative_to(SOURCE)) for m in MODULES]

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


@pytest.mark.parametrize("module", MODULES, ids=IDS)
def test_module_is_short_and_says_its_contract(module: Path) -> None:
    text = module.read_text()
    assert len(text.splitlines()) <= MODULE_LINES_MAX
    docstring = ast.get_docstring(ast.parse(text))
    assert docstring is not None and len(docstring) > 20


@pytest.mark.parametrize("module", MODULES, ids=IDS)
def test_functions_are_short_and_public_ones_are_documented(module: Path) -> None:
    tree = ast.parse(module.read_text())
    problems = []
    for owner in [tree, *[n for n in ast.walk(tree) if isinstance(n, ast.ClassDef)]]:
        private_owner = isinstance(owner, ast.ClassDef) and owner.name.startswith("_")
        for node in owner.body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            public = not node.name.startswith("_") and not private_owner
            if public and ast.get_docstring(node) is None and not _is_overload(node):
                problems.append(f"{node.name}:{node.lineno} has no docstring")
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                problems.append(f"{node.name}:{node.lineno} has {length} lines")
    assert problems == []


def _is_overload(node: ast.AST) -> bool:
    return any(
        _name(d).endswith(("overload", ".setter")) for d in getattr(node, "decorator_list", [])
    )


@pytest.mark.parametrize("module", MODULES, ids=IDS)
def test_time_randomness_and_files_are_parameters(module: Path) -> None:
    if module.relative_to(SOURCE).parts[0] in IO_ROOMS:
        return
    calls = [
        f"{_name(node.func)}:{node.lineno} ({BANNED_CALLS[_name(node.func)]})"
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Call) and _name(node.func) in BANNED_CALLS
    ]
    assert calls == []


@pytest.mark.parametrize("module", MODULES, ids=IDS)
def test_versions_are_asked_by_capability(module: Path) -> None:
    if module == SOURCE / "format" / "version.py":
        return
    comparison = re.compile(r"version(\.number)?\s*(>=|<=|==|!=|>|<)\s*[0-9]")
    table_version = [
        line.strip()
        for line in module.read_text().splitlines()
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
    banned = re.compile(r"/work/(main|shared)|/farm/|/root/|issue #?\d|TODO(?!\(#)|FIXME")
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
