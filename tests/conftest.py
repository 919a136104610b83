"""Settings of all tests: hypothesis without a clock, the same examples every time in CI, many of
them with `--hypothesis-profile=thorough`, and one process for the tests of the Spark room, whose
session is dear."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.parts import Part

settings.register_profile(
    "lakewright",
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.register_profile("ci", settings.get_profile("lakewright"), derandomize=True)
settings.register_profile("thorough", settings.get_profile("lakewright"), max_examples=300)
settings.load_profile("ci" if os.environ.get("CI") else "lakewright")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--part 1/3`: only the second third of the tests that are chosen otherwise."""
    parser.addoption("--part", metavar="K/N", help="only the part K of N of the tests, from 0 on")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests of other parts out."""
    text = config.getoption("--part")
    if text is None:
        return
    part = Part.parse(text)
    config.hook.pytest_deselected(items=[i for i in items if not part.has(i.nodeid)])
    items[:] = [item for item in items if part.has(item.nodeid)]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Spread modules over processes, but those of the Spark room together, and first."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith("tests/spark/"):
                return "spark"
            # Slow tests are long enough to go anywhere one by one.
            return nodeid.split("::", 1)[0] if "not slow" in config.option.markexpr else nodeid

    return Scheduling(config, log)
