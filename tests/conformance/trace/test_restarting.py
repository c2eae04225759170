"""Traces that restart a server of their own: how they are read, and how they are played."""

from __future__ import annotations

import sys

import pytest

from plumbline.conformance.amqp.session import AmqpSession
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.outcomes import Failed, Unsupported
from plumbline.conformance.targets.running import RunningTarget
from plumbline.conformance.targets.target import NatsUrl, TargetAccess, open_target, probe
from plumbline.conformance.targets.urls import AmqpUrl
from plumbline.conformance.trace.cases import parse_trace
from plumbline.conformance.trace.language import GivenServer, Restart
from plumbline.conformance.trace.player import play
from plumbline.errors import TargetUnreachable
from plumbline.reference_broker.amqp.server import AmqpBroker
from plumbline.reference_broker.nats.server import NatsBroker
from plumbline.servers.nats.nats_server import NatsServer
from tests.conformance.trace.writing import problems, trace

BROKER = (sys.executable, "-m", "plumbline", "broker")
STORED = """\
given server
given stream ORDERS storage=file
given stream EVENTS storage=memory
> SUB $inbox 1
> PUB ORDERS $inbox | order 1
< MSG $inbox 1 {"seq":1}
"""
AFTERWARDS = """\
expect stream ORDERS messages=1 last_seq=1
> SUB $inbox 1
> PUB $JS.API.STREAM.INFO.EVENTS $inbox
< MSG $inbox 1 {"error":{"err_code":10059}}
"""
AMQP = """\
title     A persistent message in a durable queue survives
source    AMQP 0-9-1
verifies  AMQP-DURABILITY-001
protocol  amqp
given     server
given     queue ORDERS
given     message ORDERS body=m1 delivery_mode=2
> basic.qos prefetch_count=1
< basic.qos-ok
kill
expect queue ORDERS message_count=1
> basic.get queue=ORDERS
< basic.get-ok redelivered=* body=m1
"""


def restartable(server: NatsServer) -> TargetAccess:
    return open_target(RunningTarget(NatsUrl.parse(server.url), program=(str(server.binary),)))


def test_a_restart_and_a_kill_are_read() -> None:
    read = trace("given server\n> PING\n< PONG\nrestart\n> PING\n< PONG\nkill\n> PING\n< PONG\n")
    own = [step for step in read.steps if isinstance(step, GivenServer | Restart)]
    assert own == [GivenServer(4), Restart(7), Restart(10, killed=True)]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("< PONG\nrestart\n", '5:1: expected "given server" above, found "restart"'),
        ("< PONG\ngiven server\n", '5:7: expected "given server" above every other step, found "server"'),
        ("given server now\n< PONG\n", '4:14: expected no text after "given server", found "now"'),
        ("given server\n< PONG\nkill it\n", '6:6: expected no text after "kill": there is one server'),
        ("given server\n> PING\nrestart\nclose client\n< PONG\n", "7:7: expected a connection that a line"),
        ("given server\ngiven connection c variant=auth\n< PONG\n", "4:7: expected no variant beside it"),
    ],
)
def test_restart_without_own_server_is_rejected(body: str, problem: str) -> None:
    (found,) = problems(body)
    assert found.startswith(problem)


@pytest.mark.parametrize("end", ["restart", "kill"])
def test_file_storage_survives_restart(end: str, nats_server: NatsServer) -> None:
    with NatsSession(restartable(nats_server)) as session:
        play(trace(f"{STORED}{end}\n{AFTERWARDS}"), session)
        own = session.url(None)
        assert own.address != NatsUrl.parse(nats_server.url).address
    with pytest.raises(TargetUnreachable):
        probe(own)


def test_the_target_itself_is_not_touched(nats_server: NatsServer) -> None:
    before, _ = probe(NatsUrl.parse(nats_server.url))
    with NatsSession(restartable(nats_server)) as session:
        play(trace(f"{STORED}restart\n{AFTERWARDS}"), session)
        name = session.name("ORDERS")
    after, _ = probe(NatsUrl.parse(nats_server.url))
    assert before["server_id"] == after["server_id"]
    with NatsSession(open_target(NatsUrl.parse(nats_server.url))) as session:
        assert session.stage.answer("STREAM.INFO", name)["error"]["code"] == 404


def test_operations_before_restart_must_be_expected() -> None:
    with NatsBroker.in_thread(jetstream=True) as url:
        access = open_target(RunningTarget(NatsUrl.parse(url), program=(*BROKER, "nats")))
        body = "given server\n> SUB a 1\n> PUB a | x\nrestart\n> PING\n< PONG\n"
        with NatsSession(access) as session, pytest.raises(Failed, match="no line expects") as raised:
            play(trace(body), session)
    assert raised.value.where == "a.trace:7"


def test_a_target_that_plumbline_did_not_start_is_not_restarted() -> None:
    with (
        NatsBroker.in_thread(jetstream=True) as url,
        NatsSession(open_target(NatsUrl.parse(url))) as session,
        pytest.raises(Unsupported, match="Plumbline did not start this one") as raised,
    ):
        play(trace(f"{STORED}restart\n{AFTERWARDS}"), session)
    assert raised.value.where == "a.trace:4"


def test_an_amqp_broker_is_restarted_too() -> None:
    with AmqpBroker.in_thread() as url:
        access = open_target(RunningTarget(AmqpUrl.parse(url), program=(*BROKER, "amqp", "-p", "-1")))
        with AmqpSession(access) as session:
            play(parse_trace(AMQP, "amqp.trace"), session)
            assert session.observations == 3
