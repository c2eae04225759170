"""PING from the server, and what follows without a PONG. docs.nats.io, "Client Protocol", PING/PONG."""

from __future__ import annotations

from plumbline.conformance.check import verifies
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.outcomes import Failed, Unsupported
from plumbline.wire.nats import Connect, Err, Info, Operation, Ping

A_FEW_SECONDS = 4.0
PING_INTERVAL_S, TOLERANCE_S = 1.0, 0.5  # of the variant, whose ping_max is 1
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
