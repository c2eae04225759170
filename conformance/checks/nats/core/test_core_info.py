"""INFO: what a server says of itself before anybody has asked. docs.nats.io, "Client Protocol", INFO."""

from __future__ import annotations

import ipaddress
import json
from typing import Any

from plumbline.conformance.check import verifies
from plumbline.conformance.checks.nats.core.core_refusals import closed_as_an_error
from plumbline.conformance.nats.connection import ConnectionClosed, NatsConnection
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.outcomes import Failed, Unsupported
from plumbline.wire.nats import CRLF, HPub, Info, Msg, Ping, Pong, Pub, Sub
from plumbline.wire.nats.secrets import SECRETS

# docs.nats.io, "Client Protocol", INFO: the fields that are not optional.
REQUIRED_FIELDS: dict[str, type] = {
    "server_id": str,
    "server_name": str,
    "version": str,
    "go": str,
    "host": str,
    "port": int,
    "proto": int,
    "max_payload": int,
    "headers": bool,
}
DEFAULT_MAX_PAYLOAD = 1048576


def announced(session: NatsSession) -> dict[str, Any]:
    """The fields of the first INFO of a fresh connection."""
    return session.connect(handshake=False).expect(Info, within=2.0).fields


@verifies("CORE-001", source='docs.nats.io, "Client Protocol", INFO')
def test_info_comes_first_and_unasked(session: NatsSession) -> None:
    """The server speaks first: INFO, one JSON object on one line that ends with CRLF."""
    connection = session.connect(handshake=False)
    info = connection.expect(Info, within=2.0)
    session.require(
        info.raw.endswith(CRLF) and info.raw.count(b"\n") == 1,
        "INFO is one line that ends with CRLF",
        expected="INFO {...}\\r\\n",
        actual=repr(info.raw[-40:]),
    )
    session.require(
        info.fields, "INFO carries one JSON object", expected="fields", actual=json.dumps(info.fields)
    )


@verifies("CORE-002", source='docs.nats.io, "Client Protocol", INFO')
def test_info_carries_the_required_fields(session: NatsSession) -> None:
    """INFO carries every field that is not optional, each of its type."""
    fields = announced(session)
    # A bool is an int to Python, and not to JSON.
    wrong = [name for name, kind in REQUIRED_FIELDS.items() if type(fields.get(name)) is not kind]
    session.require(
        not wrong,
        f"INFO lacks fields, or has them of another type: {', '.join(wrong)}",
        expected=", ".join(f"{name}: {REQUIRED_FIELDS[name].__name__}" for name in wrong),
        actual=", ".join(f"{name}: {json.dumps(fields.get(name))}" for name in wrong),
    )


@verifies("CORE-003", source='docs.nats.io, "Client Protocol", INFO')
def test_max_payload_is_the_default(session: NatsSession) -> None:
    """INFO announces a max_payload of 1048576 bytes."""
    found = announced(session).get("max_payload")
    if found != DEFAULT_MAX_PAYLOAD:
        raise Unsupported(
            f"INFO announces max_payload {found!r}: whether that was configured, the wire does not say"
        )
    session.count_observation()


@verifies("CORE-003", variant="no-jetstream", source='docs.nats.io, "Client Protocol", INFO')
def test_max_payload_is_the_default_where_nothing_configures_it(session: NatsSession) -> None:
    """INFO announces a max_payload of 1048576 bytes where the configuration says nothing of it."""
    found = announced(session).get("max_payload")
    session.require(
        found == DEFAULT_MAX_PAYLOAD,
        "another default",
        expected=f"max_payload {DEFAULT_MAX_PAYLOAD}",
        actual=f"max_payload {found!r}",
    )


@verifies("CORE-004", source='docs.nats.io, "Client Protocol", INFO; ADR-4, "Enabling Message Headers"')
def test_proto_and_headers_are_announced(session: NatsSession) -> None:
    """INFO announces proto 1 or higher, and headers true unless headers are switched off."""
    fields = announced(session)
    if fields.get("headers") is not True and not takes_headers(session):
        raise Unsupported(f"headers {fields.get('headers')!r} in INFO, and HPUB is refused: switched off")
    session.require(
        fields.get("headers") is True,
        "the server takes HPUB and does not announce headers",
        expected='"headers":true',
        actual=f'"headers":{json.dumps(fields.get("headers"))}',
    )
    proto = fields.get("proto")
    session.require(
        isinstance(proto, int) and proto >= 1,
        "INFO does not announce the dynamic protocol",
        expected="proto 1 or higher",
        actual=f"proto {proto!r}",
    )


def takes_headers(session: NatsSession) -> bool:
    """Whether the server takes an HPUB, whatever INFO says."""
    connection = session.connect("headers", headers=True, no_responders=False)
    connection.send(HPub.make(session.name("foo"), ()), Ping.make())
    try:
        connection.expect(Pong)
    except Failed:
        closed_as_an_error(connection)
        return False
    return True


@verifies("CORE-005", source='docs.nats.io, "Client Protocol", INFO')
def test_jetstream_is_announced_where_it_answers(session: NatsSession) -> None:
    """A server that answers the JetStream API announces jetstream true."""
    connection = session.connect()
    if not jetstream_answers(session, connection):
        raise Unsupported("$JS.API.INFO is not answered: JetStream is not enabled for this account")
    assert connection.info is not None
    found = connection.info.fields.get("jetstream")
    session.require(
        found is True,
        "JetStream answers and INFO does not announce it",
        expected='"jetstream":true',
        actual=f'"jetstream":{json.dumps(found)}',
    )


@verifies("CORE-005", variant="no-jetstream", source='docs.nats.io, "Client Protocol", INFO')
def test_jetstream_is_not_announced_where_it_is_off(session: NatsSession) -> None:
    """A server without JetStream does not announce it."""
    found = announced(session).get("jetstream", False)
    session.require(
        found is False,
        "INFO announces what is not there",
        expected="jetstream absent or false",
        actual=f'"jetstream":{json.dumps(found)}',
    )


def jetstream_answers(session: NatsSession, connection: NatsConnection) -> bool:
    """Whether $JS.API.INFO gets an answer that is no error. A server may close the connection instead."""
    connection.send(Sub.make(session.inbox(), 1), Pub.make("$JS.API.INFO", b"", session.inbox()))
    try:
        reply = connection.take(1.0)
    except ConnectionClosed:
        return False
    return isinstance(reply, Msg) and b'"error"' not in reply.payload


@verifies("CORE-006", source='docs.nats.io, "Client Protocol", INFO')
def test_auth_required_only_where_it_is(session: NatsSession) -> None:
    """A server that lets in a client without credentials does not announce auth_required."""
    tls = session.url(None).tls
    if tls is not None and tls.certificate is not None:
        raise Unsupported("the client certificate of this run may be what lets a client in")
    connection = session.connect(handshake=False)
    try:
        session.handshake(connection, **dict.fromkeys(SECRETS), user=None)
    except Failed as ended:
        raise Unsupported(f"the target requires authentication ({ended.actual})") from None
    assert connection.info is not None
    found = connection.info.fields.get("auth_required", False)
    session.require(
        found is False,
        "a client without credentials was let in",
        expected="auth_required absent or false",
        actual=f'"auth_required":{json.dumps(found)}',
    )


@verifies("CORE-007", source="observed, nats-server 2.9.10 and 2.15")
def test_optional_fields_are_of_their_type(session: NatsSession) -> None:
    """client_ip is an address, git_commit and xkey are text, api_lvl is an integer, where INFO has them."""
    fields = announced(session)
    kinds = {"client_ip": is_address, "git_commit": is_text, "xkey": is_text, "api_lvl": is_integer}
    there = [name for name in kinds if name in fields]
    if not there:
        raise Unsupported(f"INFO has none of {', '.join(kinds)}")
    wrong = [name for name in there if not kinds[name](fields[name])]
    session.require(
        not wrong,
        f"of another type: {', '.join(wrong)}",
        expected="an address, texts and an integer",
        actual=", ".join(f"{name}: {json.dumps(fields[name])}" for name in wrong),
    )


def is_address(value: Any) -> bool:
    """Whether ``value`` is text that is an IP address."""
    try:
        return isinstance(value, str) and bool(ipaddress.ip_address(value))
    except ValueError:
        return False


def is_text(value: Any) -> bool:
    """Whether ``value`` is text that is not empty."""
    return isinstance(value, str) and value != ""


def is_integer(value: Any) -> bool:
    """Whether ``value`` is a JSON integer."""
    return type(value) is int
