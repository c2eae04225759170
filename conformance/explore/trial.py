"""A trial: plays a written program on the target and finds the first difference."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from plumbline.conformance.explore.commands import (
    Acknowledge,
    AcknowledgeAndPull,
    Command,
    CreateConsumer,
    CreateStream,
    DeleteConsumer,
    DeleteMessage,
    DeleteStream,
    Describe,
    GetMessage,
    Leave,
    Listen,
    Publish,
    Pull,
    Purge,
    Restart,
    Wait,
)
from plumbline.conformance.explore.script import RESTART, Script
from plumbline.conformance.limits import OBJECT_PREFIX
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.outcomes import CheckEnded, Failed, Inconclusive, Untestable
from plumbline.conformance.targets.target import TargetAccess
from plumbline.conformance.trace.cases import parse_trace
from plumbline.conformance.trace.player import play
from plumbline.verdicts import WireLine
from plumbline.visible import one_line

PATIENCE = "within 150ms"  # while searching: what a target answers at all, it answers soon
RESTART_FAILED = "the server does not come back from a restart"
RESTART_EXPECTED = "a server that goes on with what it has stored"
_UNLIMITED = re.compile(r"(?:\w+< (?!nothing)|< (?!nothing)|expect ).*(?<!ms)(?<!end)$")
_NUMBERS = re.compile(r"\d+")
_TOKEN = re.compile(rf"{OBJECT_PREFIX}[a-z0-9]+x\d+_|_INBOX\.[\w.]+|\$w\d+\w|w\d+(?=[<>])")

# What a difference in the answer to a command decides.
_REQUIREMENTS: dict[type[Command], str] = {
    CreateStream: "JS-API-009",
    DeleteStream: "JS-API-065",
    CreateConsumer: "JS-API-124",
    DeleteConsumer: "JS-API-157",
    Publish: "JS-PUB-002",
    Pull: "JS-PULL-051",
    Listen: "JS-CONS-075",
    Leave: "JS-CONS-077",
    Acknowledge: "JS-ACK-006",
    AcknowledgeAndPull: "JS-ACK-015",
    Purge: "JS-API-079",
    DeleteMessage: "JS-API-094",
    GetMessage: "JS-API-085",
    Describe: "JS-API-077",
    Wait: "JS-CONS-063",
    Restart: "JS-STORE-019",
}
_OF_PAYLOADS = {"-NAK": "JS-ACK-009", "+WPI": "JS-ACK-013", "+TERM": "JS-ACK-020"}


class TrialDifference(Struct, frozen=True):
    """Where target and reference differ."""

    line: int  # of the script, from 0
    text: str  # that line
    command: Command
    message: str
    expected: str  # by the reference
    actual: str  # by the target
    wire: tuple[WireLine, ...] = ()
    restarted: bool = False  # at a restart, or behind one

    @property
    def key(self) -> str:
        """The same for what is most likely the same: the command and what is wrong, without numbers."""
        message_pattern = _NUMBERS.sub("#", _TOKEN.sub("", f"{self.text.split(' |')[0][:60]} {self.message}"))
        return f"{type(self.command).__name__}: {message_pattern}"


class TargetLostError(Exception):
    """The target does not answer any more."""


def trace_text(script: Script, *, title: str, source: str, verifies: str, patience: str = "") -> str:
    """The trace file. With ``patience`` every line without a limit of its own gets this one."""
    lines = [f"{line} {patience}" if patience and _UNLIMITED.match(line) else line for line in script.lines]
    return "\n".join([*_header(script, title, source, verifies), *lines, ""])


def _header(script: Script, title: str, source: str, verifies: str) -> list[str]:
    return [
        f"title     {one_line(title)}",
        f"source    {one_line(source)}",
        f"verifies  {verifies}",
        "names     ORDERS EVENTS DISPATCH AUDIT",
        *(["given     server"] if script.restarts else []),
    ]


def requirement_of(command: Command) -> str:
    """The requirement that a difference in what ``command`` does is nearest to."""
    if isinstance(command, Acknowledge):
        return _OF_PAYLOADS.get(command.payload.split(" ")[0], _REQUIREMENTS[Acknowledge])
    return _REQUIREMENTS[type(command)]


def play_script(
    script: Script, program: Sequence[Command], access: TargetAccess, *, patience: str = ""
) -> TrialDifference | None:
    """Play it; the first difference, or None. Raises ``Inconclusive`` if that stays unclear,
    ``TargetLostError``.

    A server that does not come back from a restart differs.
    """
    if not script.shows:
        return None  # nothing came, and nothing was expected
    text = trace_text(script, title="-", source="-", verifies="JS-API-009", patience=patience)
    trace = parse_trace(text, "trial")
    session = NatsSession(access)
    try:
        with session:
            play(trace, session)
    except (Failed, Untestable) as ended:
        return _difference(ended, script, program, session)
    except Inconclusive as ended:
        if script.lines[_line(ended, script)] == RESTART:
            message = f"{RESTART_FAILED}: {ended.message}"
            outcome = Inconclusive(message, expected=RESTART_EXPECTED, actual=ended.actual, where=ended.where)
            return _difference(outcome, script, program, session)
        _raise_lost(access)
        raise
    except CheckEnded:
        _raise_lost(access)
        raise
    return None


def _raise_lost(access: TargetAccess) -> None:
    if absence := access.absence_reason():
        raise TargetLostError(absence) from None


def _line(ended: CheckEnded, script: Script) -> int:
    """Where in the script a trial ended, from 0."""
    place = ended.where.rpartition(":")[2]
    if not place.isdigit():
        return 0
    return min(max(int(place) - 1 - len(_header(script, "", "", "")), 0), len(script.lines) - 1)


def _difference(
    ended: CheckEnded, script: Script, program: Sequence[Command], session: NatsSession
) -> TrialDifference:
    line = _line(ended, script)
    number = script.commands[line]
    return TrialDifference(
        line=line,
        text=script.lines[line],
        command=program[number],
        restarted=any(isinstance(command, Restart) for command in program[: number + 1]),
        message=ended.message,
        expected=ended.expected,
        actual=ended.actual,
        wire=tuple(session.wire),
    )
