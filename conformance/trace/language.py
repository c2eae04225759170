"""What a trace is made of once it is read: pure data, and the interface to the protocol it speaks.

The steps are the same for every protocol. What is sent and expected, which stage is set and which state
is asked for is read by a ``TraceDialect`` (``conformance.trace.nats.grammar``; AMQP beside it).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from plumbline.conformance.limits import DEFAULT_WITHIN_S
from plumbline.conformance.trace.reader import TraceReader
from plumbline.conformance.trace.template import Template, TraceScope
from plumbline.conformance.trace.text import Text

if TYPE_CHECKING:
    from plumbline.conformance.sessions.session import BaseSession

DEFAULT_CONNECTION = "client"

# What the lines of a trace begin with: a word of the header, a word of the body, or a connection and a mark.
HEADER = ("title", "source", "verifies", "protocol", "needs", "variant", "since", "until", "names", "cases")
BODY = ("given", "await", "expect", "close", "abort", "restart", "kill", "in", "end")
DIRECTIVES = (*HEADER, *BODY)
MARKED = re.compile(r"[ \t]*([A-Za-z][A-Za-z0-9_-]*)?([<>])")


class Mismatch(Struct, frozen=True):
    """One thing in which an operation is not what was expected."""

    name: str
    expected: str
    actual: str

    def __str__(self) -> str:
        return f"{self.name}: expected {self.expected}, got {self.actual}"


class TimeWindow(Struct, frozen=True):
    """When an expectation must come true, in seconds. ``since_send``: from the last line sent, else from
    the moment the player gets there."""

    after: float = 0.0
    within: float = DEFAULT_WITHIN_S
    since_send: bool = False

    def __str__(self) -> str:
        return f"between {self.after:g}s and {self.within:g}s" if self.after else f"within {self.within:g}s"


class StateWindow(Struct, frozen=True):
    """When the state of an object must be as expected, and for how long it must stay so, in seconds."""

    within: float = DEFAULT_WITHIN_S
    after: float = 0.0
    stays: float = 0.0


class Outgoing(Protocol):
    """An operation to send."""

    def operation(self, scope: TraceScope) -> Any:
        """As it goes on the wire."""


class Pattern(Protocol):
    """An operation to expect."""

    @property
    def explicit_kinds(self) -> tuple[type[Any], ...]:
        """Kinds of operation that come at any time and are skipped, unless asked for like this."""

    @property
    def stream(self) -> int | None:
        """On which stream of the connection it must come (AMQP: channel); None if there are none."""

    def show(self, scope: TraceScope) -> str:
        """The pattern with what is known filled in, for reports."""

    def differences(self, operation: Any, scope: TraceScope) -> list[Mismatch]:
        """Everything in which ``operation`` is not it; captures go into ``scope``."""


class Prerequisite(Protocol):
    """Something a ``given`` line sets up on the target."""

    def set(self, session: BaseSession, scope: TraceScope) -> None:
        """Raises ``Untestable`` if it cannot."""


class ObjectState(Protocol):
    """State of an object on the target."""

    def wait(self, session: BaseSession, scope: TraceScope, within: float) -> None:
        """Until it is so. Raises ``Untestable`` if it never is."""

    def expect(self, session: BaseSession, scope: TraceScope, window: StateWindow) -> None:
        """The same as evidence. Raises ``Failed``."""


class FollowingLines(Protocol):
    """The lines below the one being read, for payloads that stand there as pasted."""

    def peek(self) -> Text | None:
        """The next line, if it bears no mark and is no directive, comment or blank."""

    def take(self) -> Text | None:
        """The same, and moves past it."""

    def take_after_blank(self) -> Text | None:
        """The same for a line that follows one blank line."""


class TraceDialect(Protocol):
    """How one protocol is written in traces. Every method raises ``Problem`` for what it cannot read."""

    @property
    def reserved(self) -> frozenset[str]:
        """Words that cannot be names, because the protocol's own subjects are made of them."""

    def read_send(self, text: Text, following: FollowingLines, reader: TraceReader) -> Outgoing: ...

    def read_expect(self, text: Text, following: FollowingLines, reader: TraceReader) -> Pattern: ...

    def read_given(
        self, kind: Text, rest: Text, following: FollowingLines, reader: TraceReader
    ) -> Prerequisite: ...

    def read_state(self, kind: Text, rest: Text, reader: TraceReader) -> ObjectState: ...


class Send(Struct, frozen=True):
    """``> OP``"""

    line: int
    connection: str
    outgoing: Outgoing


class SendBytes(Struct, frozen=True):
    """``> raw "..."``"""

    line: int
    connection: str
    template: Template


class Expect(Struct, frozen=True):
    """``< PATTERN``"""

    line: int
    connection: str
    pattern: Pattern
    window: TimeWindow


class ExpectSilence(Struct, frozen=True):
    """``< nothing for 200ms``"""

    line: int
    connection: str
    for_s: float


class ExpectClosed(Struct, frozen=True):
    """``< closed``"""

    line: int
    connection: str
    window: TimeWindow


class AnyOrder(Struct, frozen=True):
    """``in any order`` ... ``end``"""

    line: int
    expects: tuple[Expect, ...]


class Prepare(Struct, frozen=True):
    """``given stream ...``"""

    line: int
    prerequisite: Prerequisite


class AwaitState(Struct, frozen=True):
    """``await consumer ...``: part of the stage."""

    line: int
    state: ObjectState
    within: float


class ExpectState(Struct, frozen=True):
    """``expect consumer ...``: evidence."""

    line: int
    state: ObjectState
    window: StateWindow


class CloseConnection(Struct, frozen=True):
    """``close NAME``; ``abort NAME`` resets the TCP connection."""

    line: int
    connection: str
    abruptly: bool = False


class GivenServer(Struct, frozen=True):
    """``given server``: one with no other user."""

    line: int


class Restart(Struct, frozen=True):
    """``restart``: the server of the trace ends in order and is started again; ``kill``: with kill -9."""

    line: int
    killed: bool = False


Step = (
    Send
    | SendBytes
    | Expect
    | ExpectSilence
    | ExpectClosed
    | AnyOrder
    | Prepare
    | GivenServer
    | AwaitState
    | ExpectState
    | CloseConnection
    | Restart
)
EVIDENCE = (Expect, ExpectSilence, ExpectClosed, AnyOrder, ExpectState)


class ConnectionOptions(Struct, frozen=True):
    """``given connection NAME key=value``. ``fields`` are options of the handshake."""

    fields: dict[str, Any] = {}
    variant: str | None = None
    handshake: bool = True
    answers_pings: bool = True


class Trace(Struct, frozen=True, kw_only=True):
    """One trace, read. ``case`` names its row in a table of cases, ``line`` is where that row is, else 1."""

    path: str
    case: str = ""
    line: int = 1
    title: str
    source: str
    verifies: tuple[str, ...]
    needs: tuple[str, ...] = ()
    variant: str | None = None
    since: str | None = None
    until: str | None = None
    labels: frozenset[str] = frozenset()
    connections: dict[str, ConnectionOptions] = {}
    steps: tuple[Step, ...]


def evidence(steps: Iterable[Step]) -> bool:
    """Whether anything in a trace can fail."""
    return any(isinstance(step, EVIDENCE) for step in steps)
