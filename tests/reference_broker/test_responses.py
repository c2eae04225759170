"""``allow_responses``: a service may answer what it receives, so often and for so long, and nothing else."""

from __future__ import annotations

import pytest

from plumbline.reference_broker.nats.config import (
    Authorization,
    Config,
    Permission,
    Permissions,
    ResponsePermission,
    User,
)
from plumbline.reference_broker.nats.virtual import VirtualBroker

CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"user":"%b","headers":true,"no_responders":true}\r\n'
REFUSED = b"-ERR 'Permissions Violation for Publish to \"%b\"'\r\n"


def started(responses: ResponsePermission) -> tuple[VirtualBroker, int, int]:
    """A broker with a service, which may publish nothing but answers, and a client."""
    permissions = Permissions(publish=Permission(allow=()), allow_responses=responses)
    users = (User("service", permissions=permissions), User("client"))
    broker = VirtualBroker(Config(authorization=Authorization(users=users)))
    service, client = broker.open(), broker.open()
    broker.send(service, CONNECT % b"service" + b"SUB ask 1\r\n")
    broker.send(client, CONNECT % b"client" + b"SUB inbox.> 1\r\n")
    broker.take(service)
    broker.take(client)
    return broker, service, client


@pytest.mark.parametrize(
    "request_", [b"PUB ask inbox.1 0\r\n\r\n", b"HPUB ask inbox.1 12 12\r\nNATS/1.0\r\n\r\n\r\n"]
)
def test_an_answer_is_allowed_once(request_: bytes) -> None:
    broker, service, client = started(ResponsePermission())
    broker.send(client, request_)
    broker.send(service, b"PUB inbox.1 2\r\nok\r\n")
    assert broker.take(client) == b"MSG inbox.1 1 2\r\nok\r\n"
    broker.take(service)
    broker.send(service, b"PUB inbox.1 2\r\nok\r\nPUB other 0\r\n\r\n")
    assert broker.take(service) == REFUSED % b"inbox.1" + REFUSED % b"other"
    assert broker.take(client) == b""


def test_a_message_without_reply_allows_nothing() -> None:
    broker, service, client = started(ResponsePermission())
    broker.send(client, b"PUB ask 1\r\n1\r\n")
    broker.take(service)
    broker.send(service, b"PUB 1 0\r\n\r\n")
    assert broker.take(service) == REFUSED % b"1"


@pytest.mark.parametrize(("seconds", "arrives"), [(9.0, True), (11.0, False)])
def test_an_answer_is_allowed_for_a_while(seconds: float, arrives: bool) -> None:
    broker, service, client = started(ResponsePermission(max_msgs=5, expires=10.0))
    broker.send(client, b"PUB ask inbox.1 0\r\n\r\n")
    broker.advance(seconds)
    broker.take(client)
    broker.send(service, b"PUB inbox.1 2\r\nok\r\n")
    assert (b"MSG inbox.1" in broker.take(client)) is arrives


def test_negative_numbers_are_no_limit() -> None:
    broker, service, client = started(ResponsePermission(max_msgs=-1, expires=-1.0))
    broker.send(client, b"PUB ask inbox.1 0\r\n\r\n")
    for _ in range(3):
        broker.send(service, b"PUB inbox.1 2\r\nok\r\n")
    assert broker.take(client).count(b"MSG inbox.1") == 3
