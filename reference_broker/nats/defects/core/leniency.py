"""Defects in what servers should or may do: odd subjects, optional fields, the first PING, slow readers."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from typing import Any

import msgspec

from plumbline.reference_broker.nats.connection import NatsClientConnection, Subscription
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect, replace
from plumbline.reference_broker.nats.defects.methods import method_defect
from plumbline.reference_broker.nats.state import OK
from plumbline.wire.nats import Connect, Pub, Sub, subjects

NEVER = 1 << 40  # bytes, or seconds


# INFO and what comes unasked


@defect("CORE-007")
def client_ip_has_a_port(broker: Broker) -> None:
    """client_ip of INFO is an address with a port."""
    fields = broker.identity.fields

    def altered(connection: NatsClientConnection) -> dict[str, Any]:
        return {**fields(connection), "client_ip": f"{connection.peer}:4222"}

    replace(broker.identity, "fields", altered)


@defect("CORE-007")
def api_level_is_text(broker: Broker) -> None:
    """api_lvl of INFO is text."""
    fields = broker.identity.fields

    def altered(connection: NatsClientConnection) -> dict[str, Any]:
        return {**fields(connection), "api_lvl": "5"}

    replace(broker.identity, "fields", altered)


@method_defect(Broker.on_connect, "CORE-009")
def connect_is_always_confirmed(
    broker: Broker, connection: NatsClientConnection, operation: Connect, now: int
) -> None:
    """CONNECT is answered with +OK, verbose or not."""
    Broker.on_connect(broker, connection, operation, now)
    if not connection.closing and not connection.options.verbose:
        broker.send(connection, OK)


@method_defect(Broker.on_ping_timer, "CORE-069")
def first_ping_is_a_pong(broker: Broker, connection: NatsClientConnection, now: int) -> None:
    """A client that was not heard is sent PONG, not PING."""
    if connection.was_pinged:
        Broker.on_ping_timer(broker, connection, now)
    else:
        connection.was_pinged = True
        broker.on_pong(connection)
        broker.send(connection, b"PONG\r\n")


# Line ends


@method_defect(Broker.on_sub, "CORE-021")
def bare_line_feed_loses_subscriptions(
    broker: Broker, connection: NatsClientConnection, operation: Sub, now: int
) -> None:
    """A SUB that ends with a bare LF is passed over."""
    if operation.raw.endswith(b"\r\n"):
        Broker.on_sub(broker, connection, operation, now)


# Odd subjects


def _also_matching(broker: Broker, fits: Callable[[bytes, bytes], bool]) -> None:
    """A message gets to further subscriptions: those whose subject ``fits`` the one published to."""
    original = broker.router.matching

    def matching(subject: bytes) -> list[Subscription]:
        found = original(subject)
        everybody = [each for one in broker.connections.values() for each in one.subscriptions.values()]
        return found + [each for each in everybody if each not in found and fits(each.subject, subject)]

    replace(broker.router, "matching", matching)


def _is_glob(subject: bytes) -> bool:
    return any(b"*" in token and len(token) > 1 for token in subject.split(b"."))


@defect("CORE-041")
def asterisk_in_a_token_is_refused(broker: Broker) -> None:
    """SUB to a subject with an asterisk inside a longer token is refused."""
    replace(broker, "is_valid_subject", lambda subject: subjects.is_valid(subject) and not _is_glob(subject))


@defect("CORE-041")
def asterisk_in_a_token_matches(broker: Broker) -> None:
    """An asterisk inside a longer token matches any characters."""

    def fits(subscribed: bytes, subject: bytes) -> bool:
        return _is_glob(subscribed) and fnmatch.fnmatchcase(subject.decode(), subscribed.decode())

    _also_matching(broker, fits)


@method_defect(Broker.on_pub, "CORE-042")
def publish_to_a_wildcard_is_dropped(
    broker: Broker, connection: NatsClientConnection, operation: Pub, now: int
) -> None:
    """A PUB to a subject with a wildcard token is dropped."""
    if subjects.is_literal(operation.args[0]):
        Broker.on_pub(broker, connection, operation, now)


@defect("CORE-042")
def publish_to_a_wildcard_reaches_what_it_matches(broker: Broker) -> None:
    """A PUB to a subject with wildcard tokens reaches subscriptions to what it matches."""

    def fits(subscribed: bytes, subject: bytes) -> bool:
        return not subjects.is_literal(subject) and subjects.covers(subject, subscribed)

    _also_matching(broker, fits)


@method_defect(Broker.on_pub, "CORE-044")
def invalid_publish_subject_is_told(
    broker: Broker, connection: NatsClientConnection, operation: Pub, now: int
) -> None:
    """A PUB to an invalid subject is answered with -ERR on every connection."""
    if not connection.options.pedantic and not subjects.is_valid(operation.args[0]):
        broker.send_err(connection, "Invalid Publish Subject")
    Broker.on_pub(broker, connection, operation, now)


@defect("CORE-044")
def empty_tokens_match_wildcards(broker: Broker) -> None:
    """A message on a subject with an empty token reaches subscriptions with wildcards."""

    def fits(subscribed: bytes, subject: bytes) -> bool:
        return b"" in subject.split(b".") and subjects.covers(subscribed, subject)

    _also_matching(broker, fits)


@method_defect(Broker.send_err, "CORE-046")
def pedantic_publish_is_confirmed_first(broker: Broker, connection: NatsClientConnection, text: str) -> None:
    """Verbose and pedantic, a PUB to an invalid subject is answered with +OK before its -ERR."""
    confirmed = connection.options.verbose and text == "Invalid Publish Subject"
    if confirmed:
        broker.send(connection, OK)
    Broker.send_err(broker, connection, text)


# Slow readers


@defect("CORE-105")
def slow_readers_stay(broker: Broker) -> None:
    """A client that does not read is never cut off."""
    unlimited = msgspec.structs.replace(broker.config, max_pending=NEVER, write_deadline=float(NEVER))
    replace(broker, "config", unlimited)
