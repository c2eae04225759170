"""The real servers that the table names have the known failures, and the others do not."""

from __future__ import annotations

from typing import Any

import pytest

from plumbline.conformance.explore.commands import (
    Acknowledge,
    CreateConsumer,
    CreateStream,
    DeleteMessage,
    GetMessage,
    Publish,
    Pull,
    Purge,
    Restart,
)
from plumbline.conformance.explore.known import KnownDivergence, known_divergences
from plumbline.conformance.explore.program_writer import write
from plumbline.conformance.explore.programs import Program
from plumbline.conformance.explore.trial import TrialDifference, play_script
from plumbline.conformance.targets.own_server import OwnServer
from plumbline.servers.nats.nats_server import ServerBinary
from plumbline.versions import holds
from tests.conformance.explore.worlds import access, reference

STREAM, IN_FILES = CreateStream("ORDERS"), CreateStream("ORDERS", {"storage": "file"})
UNREAD = CreateStream("ORDERS", {"storage": "file", "retention": "interest"})
A = Publish("ORDERS", "a")
EXPECTING = Publish("ORDERS", "a", (("Nats-Expected-Last-Sequence", "1"),))
WAITING = Pull("ORDERS", "DISPATCH")


def consumer(**settings: Any) -> CreateConsumer:
    return CreateConsumer("ORDERS", "DISPATCH", {"ack_policy": "explicit", **settings})


def purge(**body: int) -> Purge:
    return Purge("ORDERS", body)


FILTERED = consumer(filter_subject="ORDERS.a")
LAST_OF_EACH = consumer(deliver_policy="last_per_subject", filter_subject="ORDERS.>")
PLAYS = 20  # a server may lose by chance what it is known to lose sometimes, which hides what it always does
# By the first words of the reason.
PROGRAMS: dict[str, Program] = {
    "a purge with keep or seq": (STREAM, FILTERED, A, A, WAITING, purge(keep=1)),
    "a purge beyond the end": (STREAM, purge(seq=2), EXPECTING),
    "a consumer that is given a filter": (STREAM, consumer(), FILTERED, WAITING, Publish("ORDERS", "b")),
    "the last message of a subject": (
        *(IN_FILES, A, A, A, DeleteMessage("ORDERS", 3)),
        GetMessage("ORDERS", last="a"),
    ),
    "the acknowledgement floor": (
        *(IN_FILES, consumer(), A, A, WAITING, WAITING, WAITING, A, WAITING, A),
        *(Acknowledge(2, "+ACK"), Acknowledge(3, "+ACK"), Restart()),
    ),
    "sequences of messages": (UNREAD, A, A, Restart()),
    "the first answer": (IN_FILES, consumer(max_ack_pending=2), Restart(), consumer()),
    "a consumer with last_per_subject": (IN_FILES, LAST_OF_EACH, A, A, Restart()),
}


def fault(words: str) -> KnownDivergence:
    (found,) = [one for one in known_divergences() if one.reason.startswith(words)]
    return found


@pytest.mark.parametrize("words", PROGRAMS)
def test_known_divergence_occurs_on_listed_versions(words: str, server_binary: ServerBinary) -> None:
    program, known = PROGRAMS[words], fault(words)
    for _ in range(PLAYS):
        difference, level = played(program, server_binary)
        if difference is None or not explanations(difference, program, level, is_reproducible=False):
            break
    if holds(known.versions, ".".join(map(str, level))):
        assert difference is not None
        assert explanations(difference, program, level), difference.message
    else:
        assert difference is None


def played(program: Program, server_binary: ServerBinary) -> tuple[TrialDifference | None, tuple[int, ...]]:
    """Where a new server differs from the reference broker, and the level of the server."""
    server = OwnServer((str(server_binary.path),), {})
    try:
        target = access(server.start(), "real", program=(str(server_binary.path),))
        level = ".".join(map(str, target.level[:2]))
        return play_script(write(program, reference(level)), program, target), target.level
    finally:
        server.close()


def explanations(
    difference: TrialDifference, program: Program, level: tuple[int, ...], *, is_reproducible: bool = True
) -> list[KnownDivergence]:
    """The known divergences that the difference may be."""
    known = known_divergences()
    return [one for one in known if one.explains(difference, program, level, is_reproducible=is_reproducible)]
