"""What goes wrong where executors and cleaners do not know of each other, as Hudi 0.15 did it.

Each failure is a story that takes the same course whether the protections are there or not, as far
as it can. Without those that it names, it ends with the corruption that is described; with them,
somebody is refused on the way and the table stays whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lakewright.errors import FencedError, PlanBusyError, PlanStateError
from lakewright.testing.sim.mutants import MUTANTS, OWN_HEARTBEAT, TASK_FENCES, Mutant
from lakewright.testing.sim.script import DELAY_S, LOCK, UNLOCK, after, before
from tests.testing.interleavings import COMMIT, PAST, SCHEDULING
from tests.testing.scene import KEPT, REMOVABLE, Kind, Scene

COMPACTION_6, COMPACTION_8, _ = KEPT
LOG_COMPACTION_6, LOG_COMPACTION_8, CLUSTERING = REMOVABLE


@dataclass(frozen=True, slots=True)
class Failure:
    """One way to corrupt a table."""

    name: str
    kind: Kind
    without: tuple[Mutant, ...]
    """The protections that stand against it."""
    seen: dict[str, str]
    """What is complained about without them: by rule, a part of the text; `{plan}` is its time."""
    story: Callable[[Scene], None]


FAILURES: list[Failure] = []


def failure(
    name: str, kind: Kind, without: tuple[str | Mutant, ...], seen: dict[str, str]
) -> Callable[[Callable[[Scene], None]], Callable[[Scene], None]]:
    """Register a story."""

    def register(story: Callable[[Scene], None]) -> Callable[[Scene], None]:
        taken = tuple(MUTANTS[m] if isinstance(m, str) else m for m in without)
        FAILURES.append(Failure(name, kind, taken, seen, story))
        return story

    return register


CLAIM = "claim: whether another process works on the plan"
STILL_OURS = "commit: the write is still inflight"
ALIVE = "clean-up: whether somebody works on a write"
REFERS_TO_NOTHING = "_{plan}.parquet, which is not there"


@failure(
    "F1 two executors: a completed compaction names files that a rollback deleted",
    COMPACTION_6,
    (
        CLAIM,
        "commit: no rollback of the write is pending",
        "commit: the fence is that of this attempt",
    ),
    {"14.9": REFERS_TO_NOTHING, "14.24": "is completed and being rolled back"},
)
def f1(scene: Scene) -> None:
    first = scene.executor("first").to(before(LOCK, COMMIT))
    second = scene.executor("second")
    second.towards(after(UNLOCK, "*rollback of compaction*"))
    first.finish()
    second.end()


@failure(
    "F2 two executors: one compaction is completed twice",
    COMPACTION_8,
    (CLAIM, STILL_OURS),
    {"14.2": "{plan} was completed more than once", "14.9": REFERS_TO_NOTHING},
)
def f2(scene: Scene) -> None:
    first = scene.executor("first").to(before(LOCK, COMMIT))
    second = scene.executor("second")
    second.towards(before(LOCK, COMMIT))
    first.finish()
    second.end()


@failure(
    "F3 a rollback comes too early: late files belong to no instant",
    CLUSTERING,
    (ALIVE, TASK_FENCES),
    {"14.10": "no instant {plan} on the timeline"},
)
def f3(scene: Scene) -> None:
    scene.wait(DELAY_S)
    executor = scene.executor("executor").to(after("create_from"))
    rolled_back = scene.cleaner("cleaner").finish()
    executor.end()
    assert rolled_back == () or isinstance(executor.error, FencedError)


@failure(
    "F4 two executors of a log compaction: a block comes after the command that cancels it",
    LOG_COMPACTION_6,
    (
        CLAIM,
        "claim: a removable plan that was begun is refused",
        "rollback of an earlier attempt: the plan is kept",
        TASK_FENCES,
    ),
    {"14.25c": "a block of {plan} in p1/"},
)
def f4(scene: Scene) -> None:
    first = scene.executor("first").to(after("create_from"))
    scene.executor("second").fails(PlanStateError, PlanBusyError)
    first.end()
    assert first.error is None or isinstance(first.error, FencedError)


@failure(
    "F5 a cleaner removes a plan before it could run",
    LOG_COMPACTION_8,
    ("clean-up: removable plans must be old",),
    {"14.31b": "takes the plan {plan} away"},
)
def f5(scene: Scene) -> None:
    scene.wait(60.0)
    removed = scene.cleaner("cleaner").finish()
    deferred = scene.executor("deferred").end()
    assert bool(removed) == isinstance(deferred.error, PlanStateError)


@failure(
    "F6 a cleaner removes a plan that is running",
    CLUSTERING,
    (ALIVE, STILL_OURS),
    {"14.31": "rolls {plan} back", "14.9": REFERS_TO_NOTHING},
)
def f6(scene: Scene) -> None:
    scene.wait(DELAY_S)
    executor = scene.executor("executor").to(before(LOCK, COMMIT))
    scene.cleaner("cleaner").finish()
    executor.finish()


@failure(
    "F7 a cleaner decides before it has the lock",
    CLUSTERING,
    ("clean-up: who is dead is decided under the lock", STILL_OURS),
    {"14.31": "rolls {plan} back", "14.9": REFERS_TO_NOTHING},
)
def f7(scene: Scene) -> None:
    scene.wait(DELAY_S)
    cleaner = scene.cleaner("cleaner").to(before(LOCK, SCHEDULING))
    executor = scene.executor("executor").to(before(LOCK, COMMIT))
    cleaner.finish()
    executor.finish()


@failure(
    "F8 an executor stands still, is rolled back, wakes up and commits",
    CLUSTERING,
    (OWN_HEARTBEAT, STILL_OURS),
    {"14.9": REFERS_TO_NOTHING, "14.3b": "{plan} replacecommit is completed but not inflight"},
)
def f8(scene: Scene) -> None:
    scene.wait(DELAY_S)
    executor = scene.executor("executor").to(before(LOCK, COMMIT))
    executor.stall(2 * PAST)
    scene.wait(PAST)
    assert scene.cleaner("cleaner").finish() == (scene.plan,)
    executor.end()
    assert executor.error is None or isinstance(executor.error, FencedError)


@failure(
    "F8 an executor stands still, another one takes over, and the first wakes up and commits",
    COMPACTION_8,
    (OWN_HEARTBEAT, "commit: the fence is that of this attempt"),
    {"14.9": REFERS_TO_NOTHING, "14.30": "second works on it"},
)
def f8_kept(scene: Scene) -> None:
    executor = scene.executor("executor").to(before(LOCK, COMMIT))
    executor.stall(2 * PAST)
    scene.wait(PAST)
    second = scene.executor("second").to(before(LOCK, COMMIT))
    executor.end()
    assert executor.error is None or isinstance(executor.error, FencedError)
    second.end()
