"""Lame duck mode: a server that is about to end asks its clients to go. docs.nats.io, "Lame Duck Mode"."""

from __future__ import annotations

import time

from plumbline.conformance.check import verifies
from plumbline.conformance.nats.connection import ConnectionClosed, NatsConnection
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.outcomes import Failed, Unsupported
from plumbline.conformance.targets.own_server import ClaimedServer, OwnServer
from plumbline.wire.nats import Info

KNOWN_S = 5.0  # within which INFO comes; a server that moves its streams first takes a second
ENDED_S = 1.0  # within which a program that does not know the signal has ended


@verifies("CORE-107", source='docs.nats.io, "Client Protocol", INFO')
def test_lame_duck_mode_is_announced(session: NatsSession) -> None:
    """In lame duck mode an INFO with ldm true comes, on a connection that still answers PING then."""
    server = session.own_server()
    if isinstance(server, ClaimedServer):
        raise Unsupported("a claims file names no signal that begins lame duck mode")
    server.start()
    connection = session.connect_to(server)
    server.enter_lame_duck_mode()
    _await_announcement(connection, server)
    session.count_observation()
    connection.flush()


def _await_announcement(connection: NatsConnection, server: OwnServer) -> None:
    """Takes every INFO that comes. Raises ``Unsupported`` if the program ended of the signal."""
    expected, seen = "INFO with ldm true", "no INFO"
    until = time.monotonic() + KNOWN_S
    while (left := until - time.monotonic()) > 0:
        try:
            operation = connection.take(left, skip=())
        except ConnectionClosed:
            if output := server.exit_output(ENDED_S):
                raise Unsupported(f"the server has no lame duck mode: SIGUSR2 ended it ({output})") from None
            raise Failed("the connection was closed first", expected=expected, actual=seen) from None
        if isinstance(operation, Info):
            if operation.fields.get("ldm") is True:
                return
            seen = str(operation)
    raise Failed(f"it was not announced within {KNOWN_S:g} s", expected=expected, actual=seen)
