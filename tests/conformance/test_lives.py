"""A server that lives several times, and what several checks see of it: played once, judged by each."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from plumbline.conformance.amqp.session import AmqpSession
from plumbline.conformance.outcomes import ClosedInstead, Inconclusive, Unsupported
from plumbline.conformance.targets.own_server import OwnServer
from plumbline.conformance.targets.running import RunningTarget
from plumbline.conformance.targets.shared_server import judge_part
from plumbline.conformance.targets.target import TargetAccess, open_target
from plumbline.conformance.targets.urls import parse_url
from plumbline.reference_broker.amqp.server import AmqpBroker

pytestmark = pytest.mark.slow  # make test-all runs it

ENDINGS = (OwnServer.stop, OwnServer.kill)
played: list[str] = []


def _three_lives(session: AmqpSession, server: OwnServer) -> Iterator[None]:
    played.append(server.url)
    queue = session.stage_on(server).queue("KEPT")
    yield
    session.stage_on(server).expect_queue(queue, exists=True)
    yield
    session.stage_on(server).expect_queue(queue, exists=True)


def _fails(session: AmqpSession, server: OwnServer) -> Iterator[None]:
    yield
    raise ClosedInstead("it is gone", expected="a queue", actual="none")


def _gives_up(session: AmqpSession, server: OwnServer) -> Iterator[None]:
    yield from ()
    raise Unsupported("no such queues")


def _is_not_sure(session: AmqpSession, server: OwnServer) -> Iterator[None]:
    played.append(server.url)
    yield from ()
    raise Inconclusive("late")


PARTS = (_three_lives, _fails, _gives_up)


@pytest.fixture
def target(tmp_path: Path) -> Iterator[TargetAccess]:
    played.clear()
    with AmqpBroker.in_thread() as url:
        program = (sys.executable, "-m", "plumbline", "broker", "amqp", "-p", "-1")
        yield open_target(RunningTarget(parse_url(url), program=program), shared=tmp_path)


def test_parts_share_server_restarts_and_have_own_outcomes(target: TargetAccess) -> None:
    with AmqpSession(target) as session:
        judge_part(session, _three_lives, PARTS, ENDINGS)
        assert session.observations > 0
        assert [line for line in session.wire if "passive=true" in line.text]
    with AmqpSession(target) as other:
        with pytest.raises(ClosedInstead, match="it is gone") as failed:
            judge_part(other, _fails, PARTS, ENDINGS)
        assert (failed.value.expected, failed.value.actual) == ("a queue", "none")
        assert not [line for line in other.wire if "queue.declare" in line.text]  # those of another part
        with pytest.raises(Unsupported, match="no such queues"):
            judge_part(other, _gives_up, PARTS, ENDINGS)
        assert other.observations == 0
    assert len(played) == 1


def test_inconclusive_part_is_played_again(target: TargetAccess) -> None:
    for _ in range(2):
        with AmqpSession(target) as session, pytest.raises(Inconclusive):
            judge_part(session, _is_not_sure, (_is_not_sure,), ())
    assert len(set(played)) == 2


def test_part_with_too_many_restarts_is_rejected(target: TargetAccess) -> None:
    with AmqpSession(target) as session, pytest.raises(AssertionError, match="more restarts"):
        judge_part(session, _three_lives, (_three_lives,), ())
