"""PING from the server, and what follows without a PONG. docs.nats.io, "Client Protocol", PING/PONG."""

from __future__ import annotations

import time

from plumbline.conformance.check import verifies
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.outcomes import Failed, Inconclusive, Unsupported
from plumbline.conformance.sessions.connection import Arrival
from plumbline.wire.nats import Connect, Err, Info, Operation, Ping, Pong, Pub

A_FEW_SECONDS = 6.0
SOURCE_OF_INTERVAL = 'docs.nats.io, "Server Configuration", ping_interval'
PING_INTERVAL_S, TOLERANCE_S = 1.0, 0.5  # of the variant, whose ping_max is 1
OFTEN_S, TIMES = 0.25, 14  # what a busy client sends, over three intervals
STALE = "-ERR 'Stale Connection', and no second PING"


@verifies("CORE-069", source="observed, nats-server 2.9.10 and 2.15", is_long=True)
def test_first_ping_comes_early(session: NatsSession) -> None:
    """To a client that has sent no PING the server's first one comes within seconds."""
    connection = session.connect(handshake=False)
    connection.expect(Info, within=2.0)
    connection.send(Connect.make(session.connect_fields(connection)))
    first = connection.take(A_FEW_SECONDS, skip=(Info,))
    if first is None:
        raise Unsupported(f"no PING within {A_FEW_SECONDS:g} s of the connection")
    session.require(isinstance(first, Ping), "no PING but something else", expected="PING", actual=str(first))


@verifies("CORE-068", source='docs.nats.io, "Client Protocol", PING/PONG', variant="pings")
def test_unanswered_pings_end_the_connection(session: NatsSession) -> None:
    """A client that leaves ping_max PINGs unanswered gets Stale Connection, and the connection is closed."""
    client = session.connect()
    client.answers_pings = False

    def judge_ping(operation: Operation) -> None:
        if not isinstance(operation, Ping):
            raise something_else(operation, "PING")

    def judge_error(operation: Operation) -> None:
        if not isinstance(operation, Err) or operation.message.lower() != "stale connection":
            raise something_else(operation, STALE)

    def something_else(operation: Operation, expected: str) -> Failed:
        client.mark_offending(operation)
        return Failed("something else came", expected=expected, actual=str(operation))

    within = PING_INTERVAL_S + TOLERANCE_S
    ping = client.arrival(PING_INTERVAL_S + within, "PING", skip=(Info,), judge=judge_ping)
    error = client.arrival(within, STALE, skip=(Info,), since=ping.at, judge=judge_error)
    waited = error.at - ping.at
    session.require(
        waited >= PING_INTERVAL_S - TOLERANCE_S,
        "the PONG was not awaited",
        expected=f"{STALE}, {PING_INTERVAL_S:g} s after the PING",
        actual=f"after {waited:.3f} s",
    )
    client.expect_closed()


@verifies("CORE-115", source=SOURCE_OF_INTERVAL, variant="pings", is_long=True)
def test_a_client_that_publishes_gets_no_ping(session: NatsSession) -> None:
    """A client that publishes four times in each ping_interval gets no PING."""
    _gets_no_ping(session, Pub.make(session.name("s"), b"x"))


@verifies("CORE-115", source=SOURCE_OF_INTERVAL, variant="pings", is_long=True)
def test_a_client_that_pings_gets_no_ping(session: NatsSession) -> None:
    """A client that sends PING four times in each ping_interval gets no PING."""
    _gets_no_ping(session, Ping.make())


def _gets_no_ping(session: NatsSession, traffic: Operation) -> None:
    """After the first PING, which may come to any client (CORE-069)."""
    client = session.connect()
    if not isinstance(client.take(2 * PING_INTERVAL_S + TOLERANCE_S, skip=(Info,)), Ping):
        raise Inconclusive("a silent client got no first PING (CORE-068)")
    ping: Arrival | None = None
    longest, last = 0.0, time.monotonic()
    for _ in range(TIMES):
        client.send(traffic)
        sent = time.monotonic()
        longest, last = max(longest, sent - last), sent
        ping = client.poll(sent + OFTEN_S, skip=(Info, Pong))
        if ping is not None and isinstance(ping.operation, Ping):
            client.mark_offending(ping.operation)
            longest = max(longest, ping.at - last)
            if longest > PING_INTERVAL_S / 2:
                raise Inconclusive(f"this machine was too busy to send something every {OFTEN_S:g} s")
            break
    session.require(
        ping is None or not isinstance(ping.operation, Ping),
        "a client that is not silent gets a PING",
        expected=f"no PING within {TIMES * OFTEN_S:g} s",
        actual="PING",
    )
