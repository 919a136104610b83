"""The known ways to corrupt a table by services: open without the protections, closed with them."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.testing.failures import FAILURES, Failure
from tests.testing.scene import Scene, play

CASES = pytest.mark.parametrize("failure", FAILURES, ids=[f.name for f in FAILURES])


@CASES
def test_without_its_protections_the_table_is_corrupted_as_described(failure: Failure) -> None:
    scene = Scene(failure.kind)
    with ExitStack() as stack:
        for mutant in failure.without:
            stack.enter_context(mutant.at_work())
        scene.play(lambda _: failure.story(scene), recovers=False)
    seen = scene.complaints
    for rule, text in failure.seen.items():
        wanted = text.format(plan=scene.plan)
        assert any(wanted in complaint for complaint in seen.get(rule, ())), seen


@CASES
def test_with_all_protections_the_same_course_leaves_the_table_whole(failure: Failure) -> None:
    scene = play(Scene(failure.kind), failure.story)
    assert len(scene.completed_by(scene.plan)) <= 1
