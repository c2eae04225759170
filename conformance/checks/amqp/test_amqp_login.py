"""AMQP: logins, beside those with PLAIN and the right password, and what a client says of itself."""

from __future__ import annotations

from typing import Any

from plumbline.conformance.amqp.connection import AmqpConnection
from plumbline.conformance.amqp.handshake import sasl_response, start_ok
from plumbline.conformance.amqp.probe import offered_mechanisms
from plumbline.conformance.amqp.session import AmqpSession
from plumbline.conformance.check import verifies
from plumbline.conformance.checks.amqp.amqp_opening import ENDS_WITHIN_S, expect_end, greeted
from plumbline.conformance.checks.amqp.test_amqp_opening import needs_password, needs_plain
from plumbline.conformance.outcomes import Failed, Unsupported
from plumbline.conformance.sessions.connection import ConnectionClosed
from plumbline.wire.amqp import encode_entries

AMQPLAIN = "AMQPLAIN"
SETTINGS = "amqp-settings"
PERMISSIONS = "amqp-permissions"
MECHANISMS = 'RabbitMQ, "Access Control", "Authentication Mechanisms"'
FAILURES = 'RabbitMQ, "Authentication Failure Notifications"'
PROPERTIES = "AMQP 0-9-1 XML, connection.start-ok, parameter client-properties"


def _offered_amqplain(session: AmqpSession, name: str = "client") -> AmqpConnection:
    """A connection on which connection.start came. Raises ``Unsupported`` if it does not offer AMQPLAIN."""
    needs_password(session)
    connection, start = greeted(session, name)
    if AMQPLAIN not in offered_mechanisms(start):
        raise Unsupported("connection.start does not offer AMQPLAIN")
    return connection


def _table(entries: dict[str, Any]) -> str:
    return encode_entries(entries).decode("utf-8", "surrogateescape")


@verifies("AMQP-CONN-050", source=MECHANISMS)
def test_amqplain_logs_in(session: AmqpSession) -> None:
    """LOGIN and PASSWORD in an AMQPLAIN response are answered with connection.tune."""
    connection = _offered_amqplain(session)
    connection.send(start_ok(session.url(None), {"mechanism": AMQPLAIN}))
    connection.expect("connection.tune")


@verifies(
    "AMQP-CONN-011",
    source='AMQP 0-9-1 XML, connection.start-ok, parameter mechanism, rule "validity"',
    is_long=True,
    variant=SETTINGS,
)
def test_known_mechanism_that_was_not_offered(session: AmqpSession) -> None:
    """Where AMQPLAIN is not offered, a login by it with the right password ends the connection."""
    connection, start = greeted(session)
    if AMQPLAIN in offered_mechanisms(start):
        raise Unsupported("connection.start offers AMQPLAIN")
    connection.send(start_ok(session.url(SETTINGS), {"mechanism": AMQPLAIN, "capabilities": {}}))
    expect_end(session, connection, "a mechanism that was not offered")


@verifies("AMQP-CONN-009", source=FAILURES, is_long=True)
def test_unknown_user_ends_the_connection(session: AmqpSession) -> None:
    """A user that does not exist, with the password of one that does, ends the connection."""
    needs_password(session)
    connection, _ = greeted(session)
    connection.send(start_ok(session.url(None), {"user": session.name("unknown"), "capabilities": {}}))
    expect_end(session, connection, "an unknown user", 403)


@verifies("AMQP-CONN-009", source=FAILURES, is_long=True, variant=PERMISSIONS)
def test_almost_right_login_ends_the_connection(session: AmqpSession) -> None:
    """A password or a name in capitals, cut short, or with something after it, ends the connection."""
    # The logins of the variant are public. Of a real password a part would be shown in reports.
    logins = {
        "a password in capitals": ("some", "SOME"),
        "the beginning of a password": ("some", "som"),
        "a password and more": ("some", "some1"),
        "an empty password": ("some", ""),
        "a name in capitals": ("SOME", "some"),
        "the password of another user": ("some", "topics"),
    }
    connections: dict[str, AmqpConnection] = {}
    for what, (user, password) in logins.items():
        connection, start = greeted(session, f"client{len(connections)}")
        needs_plain(start)
        login = {"mechanism": "PLAIN", "user": user, "password": password, "capabilities": {}}
        connection.send(start_ok(session.url(PERMISSIONS), login))
        connections[what] = connection
    for what, connection in connections.items():
        expect_end(session, connection, what, 403)


@verifies("AMQP-CONN-009", source=FAILURES, is_long=True)
def test_wrong_password_with_amqplain(session: AmqpSession) -> None:
    """A wrong password, and a user that does not exist, end the connection with AMQPLAIN, too."""
    wrong = ({"password": "wrong"}, {"user": session.name("unknown")})
    connections = [_offered_amqplain(session, f"client{number}") for number in range(len(wrong))]
    for connection, options in zip(connections, wrong, strict=True):
        login = {"mechanism": AMQPLAIN, "capabilities": {}, **options}
        connection.send(start_ok(session.url(None), login))
    for connection in connections:
        expect_end(session, connection, "a wrong login with AMQPLAIN", 403)


@verifies("AMQP-CONN-051", source=MECHANISMS, is_long=True)
def test_malformed_amqplain_response(session: AmqpSession) -> None:
    """An AMQPLAIN response that is no table, or lacks a text LOGIN or PASSWORD, ends the connection."""
    url = session.url(None)
    user, password = getattr(url, "user", ""), getattr(url, "password", "")
    responses = {
        "no table": "\udcff\udcfe",
        "the response of PLAIN": sasl_response("PLAIN", user, password),
        "an empty table": "",
        "no PASSWORD": _table({"LOGIN": user}),
        "no LOGIN": _table({"PASSWORD": password}),
        "a number as PASSWORD": _table({"LOGIN": user, "PASSWORD": 1}),
        "a number as LOGIN": _table({"LOGIN": 1, "PASSWORD": password}),
    }
    connections: dict[str, AmqpConnection] = {}
    for number, (what, response) in enumerate(responses.items()):
        connection = connections[what] = _offered_amqplain(session, f"client{number}")
        connection.send(start_ok(url, {"mechanism": AMQPLAIN, "response": response, "capabilities": {}}))
    for what, connection in connections.items():
        expect_end(session, connection, f"an AMQPLAIN response with {what}")


@verifies("AMQP-CONN-052", source=FAILURES, is_long=True)
def test_wrong_password_is_not_told_unasked(session: AmqpSession) -> None:
    """A client without the capability authentication_failure_close, or with another value of it than true,
    gets no connection.close for wrong credentials: the connection just ends."""
    needs_password(session)
    claims: tuple[dict[str, Any], ...] = ({}, {"authentication_failure_close": False})
    connections = []
    for number, capabilities in enumerate(claims):
        connection, _ = greeted(session, f"client{number}")
        connections.append(connection)
        connection.send(start_ok(session.url(None), {"password": "wrong", "capabilities": capabilities}))
    for connection in connections:
        try:
            answer = connection.take(ENDS_WITHIN_S)
        except ConnectionClosed:
            connection.expect_closed(0.1)
            continue
        if answer is not None:
            connection.mark_offending(answer)
        raise Failed(
            "a client that does not ask for the reason is not just disconnected",
            expected=f"the connection closed, within {ENDS_WITHIN_S:g} s",
            actual=str(answer or "nothing"),
        )


@verifies("AMQP-CONN-053", source=PROPERTIES)
def test_client_properties_are_the_clients_own(session: AmqpSession) -> None:
    """A login is tuned whatever the client says of itself: nothing, no capabilities, or a text for them."""
    own: dict[str, dict[str, Any]] = {
        "a text for its capabilities": {"capabilities": "all"},
        "no capabilities": {"capabilities": {}},
        "unknown properties": {"colour": [1, {"shade": True}], "product": None},
    }
    for number, (what, properties) in enumerate(own.items()):
        connection, _ = greeted(session, f"client{number}")
        connection.send(start_ok(session.url(None), {"client_properties": properties}))
        try:
            answer = connection.take(ENDS_WITHIN_S)
        except ConnectionClosed:
            answer = None
        session.require(
            answer is not None and answer.method == "connection.tune",
            f"a client with {what} cannot log in",
            expected="connection.tune",
            actual=str(answer or "the connection was closed, or nothing came"),
        )


@verifies("AMQP-CONN-053", source=PROPERTIES)
def test_text_for_capabilities_claims_none(session: AmqpSession) -> None:
    """A client that sends a text for its capabilities gets no basic.cancel, and its connection goes on."""
    queue = session.stage.queue("ORDERS")
    client = session.connect(client_properties={"capabilities": "consumer_cancel_notify"})
    client.call("basic.consume", queue=queue, consumer_tag="c")
    session.stage.delete("queue", queue)
    client.expect_silence(for_s=0.3)
    client.call("basic.qos", prefetch_count=1)
