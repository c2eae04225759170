"""Defects in what servers should or may do: odd subjects, optional fields, the first PING, slow readers."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from typing import Any

import msgspec

from plumbline.reference_broker.nats import subjects
from plumbline.reference_broker.nats.connection import Connection, Subscription
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect, replace
from plumbline.reference_broker.nats.state import OK
from plumbline.wire.nats import Connect, Pub, Sub

NEVER = 1 << 40  # bytes, or seconds


# INFO and what comes unasked


@defect(
    "client-ip-has-a-port",
    breaks=("CORE-007",),
    summary="client_ip of INFO is an address with a port.",
)
def _(broker: Broker) -> None:
    fields = broker.identity.fields

    def altered(connection: Connection) -> dict[str, Any]:
        return {**fields(connection), "client_ip": f"{connection.peer}:4222"}

    replace(broker.identity, "fields", altered)


@defect("api-level-is-text", breaks=("CORE-007",), summary="api_lvl of INFO is text.")
def _(broker: Broker) -> None:
    fields = broker.identity.fields

    def altered(connection: Connection) -> dict[str, Any]:
        return {**fields(connection), "api_lvl": "5"}

    replace(broker.identity, "fields", altered)


@defect(
    "connect-is-always-confirmed",
    breaks=("CORE-009",),
    summary="CONNECT is answered with +OK, verbose or not.",
)
def _(broker: Broker) -> None:
    original = broker.connected

    def connected(connection: Connection, operation: Connect, now: int) -> None:
        original(connection, operation, now)
        if not connection.closing and not connection.options.verbose:
            broker.send(connection, OK)

    replace(broker, "connected", connected)


@defect(
    "first-ping-is-a-pong",
    breaks=("CORE-069",),
    summary="A client that was not heard is sent PONG, not PING.",
)
def _(broker: Broker) -> None:
    original = broker.ping_is_due

    def ping_is_due(connection: Connection, now: int) -> None:
        if connection.was_pinged:
            original(connection, now)
        else:
            connection.was_pinged = True
            broker.ponged(connection)
            broker.send(connection, b"PONG\r\n")

    replace(broker, "ping_is_due", ping_is_due)


# Line ends


@defect(
    "bare-line-feed-loses-subscriptions",
    breaks=("CORE-021",),
    summary="A SUB that ends with a bare LF is passed over.",
)
def _(broker: Broker) -> None:
    original = broker.subscribed

    def subscribed(connection: Connection, operation: Sub, now: int) -> None:
        if operation.raw.endswith(b"\r\n"):
            original(connection, operation, now)

    replace(broker, "subscribed", subscribed)


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


@defect(
    "asterisk-in-a-token-is-refused",
    breaks=("CORE-041",),
    summary="SUB to a subject with an asterisk inside a longer token is refused.",
)
def _(broker: Broker) -> None:
    replace(broker, "is_valid_subject", lambda subject: subjects.is_valid(subject) and not _is_glob(subject))


@defect(
    "asterisk-in-a-token-matches",
    breaks=("CORE-041",),
    summary="An asterisk inside a longer token matches any characters.",
)
def _(broker: Broker) -> None:
    def fits(subscribed: bytes, subject: bytes) -> bool:
        return _is_glob(subscribed) and fnmatch.fnmatchcase(subject.decode(), subscribed.decode())

    _also_matching(broker, fits)


@defect(
    "publish-to-a-wildcard-is-dropped",
    breaks=("CORE-042",),
    summary="A PUB to a subject with a wildcard token is dropped.",
)
def _(broker: Broker) -> None:
    original = broker.published

    def published(connection: Connection, operation: Pub, now: int) -> None:
        if subjects.is_literal(operation.args[0]):
            original(connection, operation, now)

    replace(broker, "published", published)


@defect(
    "publish-to-a-wildcard-reaches-what-it-matches",
    breaks=("CORE-042",),
    summary="A PUB to a subject with wildcard tokens reaches subscriptions to what it matches.",
)
def _(broker: Broker) -> None:
    def fits(subscribed: bytes, subject: bytes) -> bool:
        return not subjects.is_literal(subject) and subjects.covers(subject, subscribed)

    _also_matching(broker, fits)


@defect(
    "invalid-publish-subject-is-told",
    breaks=("CORE-044",),
    summary="A PUB to an invalid subject is answered with -ERR on every connection.",
)
def _(broker: Broker) -> None:
    original = broker.published

    def published(connection: Connection, operation: Pub, now: int) -> None:
        if not connection.options.pedantic and not subjects.is_valid(operation.args[0]):
            broker.complain(connection, "Invalid Publish Subject")
        original(connection, operation, now)

    replace(broker, "published", published)


@defect(
    "empty-tokens-match-wildcards",
    breaks=("CORE-044",),
    summary="A message on a subject with an empty token reaches subscriptions with wildcards.",
)
def _(broker: Broker) -> None:
    def fits(subscribed: bytes, subject: bytes) -> bool:
        return b"" in subject.split(b".") and subjects.covers(subscribed, subject)

    _also_matching(broker, fits)


@defect(
    "pedantic-publish-is-confirmed-first",
    breaks=("CORE-046",),
    summary="Verbose and pedantic, a PUB to an invalid subject is answered with +OK before its -ERR.",
)
def _(broker: Broker) -> None:
    original = broker.complain

    def complain(connection: Connection, text: str) -> None:
        confirmed = connection.options.verbose and text == "Invalid Publish Subject"
        if confirmed:
            broker.send(connection, OK)
        original(connection, text)

    replace(broker, "complain", complain)


# Slow readers


@defect(
    "slow-readers-stay",
    breaks=("CORE-105",),
    summary="A client that does not read is never cut off.",
)
def _(broker: Broker) -> None:
    unlimited = msgspec.structs.replace(broker.config, max_pending=NEVER, write_deadline=float(NEVER))
    replace(broker, "config", unlimited)
