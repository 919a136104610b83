"""What a reader may do with damaged bytes, and how it is caught doing anything else.

A mutant ends well in four ways: it is read whole; its valid beginning is read, and the torn end is
told; a corrupt part in the middle is skipped as the format says, and told; or it is refused with an
error the target allows, which names the file and an offset inside of it. What was read must stand
the target's own checks each time. Everything else is a finding: another exception, a
`ViolationError` of a check, more processor time or memory than the limits. A dead process is found
by the supervisor.

The limits are those of one process: `Limits.enter` is called once in each.
"""

from __future__ import annotations

import resource
import signal
import sys
import traceback
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pyarrow as pa

import lakewright
from lakewright.errors import FormatError, LakewrightError
from lakewright.testing.fuzz.corpus import Corpus, Seed
from lakewright.testing.fuzz.mutators import Mutator

__all__ = [
    "PATH",
    "Case",
    "Kind",
    "Limits",
    "Outcome",
    "Target",
    "ViolationError",
    "demand",
    "demand_sound",
    "judge",
    "same_values",
]

PATH: Final = "folder/damaged"
"""The path that readers are given, and that their errors must name."""
_SPOT_CHECKS: Final = 2
"""One mutant of so many is held against a slow oracle."""
_PRODUCT: Final = str(Path(lakewright.__file__).parent)
_TESTING: Final = str(Path(lakewright.__file__).parent / "testing")
_MIB: Final = 1 << 20


class ViolationError(Exception):
    """What was read is wrong."""


def demand(holds: bool, what: str) -> None:
    """Raise `ViolationError` unless a property of what was read holds."""
    if not holds:
        raise ViolationError(what)


def demand_sound(values: Any) -> None:
    """Raise `ViolationError` unless an Arrow array, batch or table is what its type promises.

    A time of day outside of a day is taken as it is stored: Arrow itself reads such files.
    """
    try:
        values.validate(full=True)
    except pa.ArrowInvalid as error:
        if "is not within the acceptable range" not in str(error):
            raise ViolationError(f"unsound Arrow data: {error}") from error


def same_values(left: Any, right: Any) -> bool:
    """Whether two Arrow arrays, batches or tables are equal; not-a-number equals itself."""
    return bool(left.equals(right)) or str(left.to_pylist()) == str(right.to_pylist())


@dataclass(frozen=True, slots=True)
class Case:
    """One mutant, and the undamaged file it came from."""

    data: bytes
    seed: Seed
    partners: Sequence[bytes] = ()
    """Other undamaged files, parts of which may have been put into it."""

    @property
    def spot(self) -> bool:
        """Whether slow oracles are asked; decided by the bytes, so that a replay asks them too."""
        return zlib.crc32(self.data) % _SPOT_CHECKS == 0

    @property
    def sound_bytes(self) -> int:
        """Length of the beginning that the damage left alone."""
        low, high = 0, min(len(self.data), len(self.seed.data))
        while low < high:
            middle = (low + high + 1) // 2
            if self.data[:middle] == self.seed.data[:middle]:
                low = middle
            else:
                high = middle - 1
        return low


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One reader under fire."""

    name: str
    about: str
    seeds: Callable[[Corpus], list[Seed]]
    check: Callable[[Case], Kind | None]
    """Reads the mutant and says how that ended (None: read whole); raises the reader's error, or
    `ViolationError` for a wrong result."""
    allowed: tuple[type[LakewrightError], ...] = (FormatError,)
    path: str = PATH
    """How the path in every error must begin."""
    one_file: bool = True
    """Whether the mutant is all there is, so that offsets must lie inside of it."""
    unplaced: tuple[type[LakewrightError], ...] = ()
    """Errors without a file and an offset: the reader is given a text whose place only its caller
    knows, or it refuses a lawful file for what it says."""
    tokens: tuple[bytes, ...] = ()
    shapes: tuple[Mutator, ...] = ()
    share: float = 4
    """How often it has its turn, relative to the others."""


class Kind(Enum):
    """How a mutant ended."""

    WHOLE = "read whole"
    PREFIX = "valid prefix"
    SKIPPED = "skipped and reported"
    REFUSED = "refused"
    WRONG_RESULT = "wrong result"
    WRONG_ERROR = "wrong error"
    UNPLACED_ERROR = "error without a place"
    TOO_SLOW = "too slow"
    TOO_LARGE = "too much memory"
    CRASH = "crash"
    HANG = "hang"

    @property
    def is_finding(self) -> bool:
        """Whether the reader did what it must not do."""
        return self not in (Kind.WHOLE, Kind.PREFIX, Kind.SKIPPED, Kind.REFUSED)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one mutant ended, and where in the product."""

    kind: Kind
    where: str = ""
    """The lines of the product that an error came through, outermost first."""
    detail: str = ""


class _Overtime(BaseException):
    """Raised into a reader by the processor-time alarm."""


@dataclass(slots=True)
class Limits:
    """What one mutant may cost."""

    cpu_s: float = 4.0
    memory_bytes: int = 200 * _MIB
    """Beyond what the process had after its warm-up; 50 times the file comes on top."""
    address_bytes: int = 3 << 30
    """Address space beyond that of the warmed-up process, resident or not."""
    base_bytes: int = field(default=0, init=False)

    def enter(self) -> None:
        """Limit this process; call it when everything that is always needed is loaded."""
        signal.signal(signal.SIGPROF, _raise_overtime)
        self.base_bytes = _peak_bytes()
        used = _address_space_bytes()
        if used:
            _, hard = resource.getrlimit(resource.RLIMIT_AS)
            resource.setrlimit(resource.RLIMIT_AS, (used + self.address_bytes, hard))

    def too_large(self, size: int) -> bool:
        """Whether the process has ever held more than it may for files of `size` bytes."""
        if not self.base_bytes:  # still warming up
            return False
        held = _peak_bytes() - self.base_bytes
        if held <= self.memory_bytes + 50 * size:
            return False
        self.base_bytes += held  # told once
        return True


def judge(target: Target, case: Case, limits: Limits | None = None) -> Outcome:
    """Let the target read the mutant, and say how it ended."""
    try:
        with _timed(limits):
            outcome = Outcome(target.check(case) or Kind.WHOLE)
    except ViolationError as wrong:
        outcome = Outcome(Kind.WRONG_RESULT, str(wrong)[:60], str(wrong))
    except target.allowed as error:
        outcome = _refused(target, case, error)
    except _Overtime as late:
        outcome = Outcome(
            Kind.TOO_SLOW, _where(late)[-1], "".join(traceback.format_exception(late))
        )
    except MemoryError as error:
        outcome = Outcome(Kind.TOO_LARGE, _where(error)[-1], _text(error))
    except Exception as error:
        outcome = Outcome(
            Kind.WRONG_ERROR, f"{type(error).__name__} {_where(error)[-1]}", _text(error)
        )
    if limits is not None and not outcome.kind.is_finding and limits.too_large(len(case.data)):
        return Outcome(Kind.TOO_LARGE, outcome.where, "resident memory; see the file")
    return outcome


@contextmanager
def _timed(limits: Limits | None) -> Iterator[None]:
    """Two alarms on processor time: one that raises, and later one that ends the process.

    The second is for code that never comes back to Python, where nothing can be raised.
    """
    if limits is None:
        yield
        return
    signal.setitimer(signal.ITIMER_PROF, limits.cpu_s)
    signal.setitimer(signal.ITIMER_VIRTUAL, 4 * limits.cpu_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _refused(target: Target, case: Case, error: LakewrightError) -> Outcome:
    frames = _where(error)
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MemoryError):
            return Outcome(Kind.TOO_LARGE, frames[-1], _text(error))
        cause = cause.__cause__ or cause.__context__
    if not _is_placed(target, case, error):
        return Outcome(Kind.UNPLACED_ERROR, f"{type(error).__name__} {frames[-1]}", _text(error))
    return Outcome(Kind.REFUSED, " ".join([type(error).__name__, *frames]), str(error))


def _is_placed(target: Target, case: Case, error: LakewrightError) -> bool:
    if isinstance(error, target.unplaced) or "property" in error.context:
        return True  # a property is a line of one file
    if "table" in error.context and not target.one_file:
        return True  # what is missing altogether has no offset
    path, offset = error.context.get("path"), error.context.get("offset")
    if not isinstance(path, str) or not path.startswith(target.path):
        return False
    if not isinstance(error, FormatError):
        return True  # a feature that is refused is no damage
    end = len(case.data) if target.one_file else sys.maxsize
    return isinstance(offset, int) and 0 <= offset <= end


def _where(error: BaseException) -> list[str]:
    places = []
    trace = error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if name.startswith(_PRODUCT) and not name.startswith(_TESTING):
            places.append(f"{name[len(_PRODUCT) + 1 :]}:{trace.tb_lineno}")
        trace = trace.tb_next
    return places or ["?"]


def _text(error: BaseException) -> str:
    return "".join(traceback.format_exception(error, limit=-8))


def _raise_overtime(_signal: int, _frame: FrameType | None) -> None:
    raise _Overtime


def _peak_bytes() -> int:
    """The most that this process has ever held.

    Linux tells it apart from what the process that started this one held, `getrusage` does not.
    """
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _address_space_bytes() -> int:
    """0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError):
        return 0
    return pages * resource.getpagesize()
