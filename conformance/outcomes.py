"""How a check ends early: one exception for each outcome that is not "passed".

A check raises one of these, from anywhere; ``conformance.runner.engine`` turns it into a ``CheckResult``.
"""

from __future__ import annotations


class CheckEnded(Exception):
    """Base of the exceptions below."""

    def __init__(self, message: str, *, expected: str = "", actual: str = "", where: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.expected = expected
        self.actual = actual
        self.where = where


class Failed(CheckEnded):
    """The target broke the requirement; ``expected`` and ``actual`` are the evidence."""


class NothingCame(Failed):
    """What was expected did not come in time, and the target is alive."""


class ClosedInstead(Failed):
    """The target closed the connection in place of what was expected, and is alive."""


class StillOpen(Failed):
    """The target did not close the connection and sent nothing there; it answers a new one."""


class Unsupported(CheckEnded):
    """The target does not claim it; ``message`` says what shows that (version, INFO, its own answer)."""


class NotClaimed(Unsupported):
    """The claims file does not claim it, or it does not apply at the level of the target."""


class Untestable(CheckEnded):
    """A prerequisite was missing: the stage could not be set."""


class Inconclusive(CheckEnded):
    """The evidence was indeterminate: a time-out at the edge, a lost connection."""


class Unanswered(Inconclusive):
    """The server at ``address`` did not answer ``request``, which every living server answers.

    ``is_blocked``: the server has announced that it reads nothing of that connection for now.
    """

    def __init__(
        self, message: str, *, request: str, address: str, is_blocked: bool = False, **evidence: str
    ) -> None:
        super().__init__(message, **evidence)
        self.is_blocked = is_blocked
        self.request = request
        self.address = address


class StoppedReading(Inconclusive):
    """The server takes no more bytes of a connection."""


class Flooded(CheckEnded):
    """The target sent more than one check may receive, which is a failure.

    It is no ``Failed``, which some steps take for a missing answer.
    """
