"""Flush, after which the server has read what was published: docs.nats.io, "Caches, Flush and Ping"."""

from __future__ import annotations

import threading

from plumbline.conformance.clients.nats.scene import NatsScene, expect_error, expect_success
from plumbline.conformance.clients.protocol import AdapterAnswer
from plumbline.conformance.clients.scenario import scenario
from plumbline.monitors import Observation
from plumbline.wire.nats import HPub, Ping, Pong, Pub

SUBJECT = "orders.flushed"
NO_PONG = "drop PONG on downstream"
HELD_S = 0.5  # how long a PONG is kept back: a flush that does not wait for it ends meanwhile
FLUSH_WITHIN_MS = 10_000  # what nats.go and nats.py have, unless their user asks for less
NO_ANSWER_MS = 2_000  # the same where no PONG comes: some libraries wait for ever
PING_MS = 400
PINGS_OUT = 20  # more than are sent meanwhile


@scenario("CLIENT-CORE-009", needs=["publish.flush"])
def a_flush_ends_after_what_was_published(scene: NatsScene) -> None:
    """PING follows the message, and flush waits for its PONG."""
    scene.connect()
    scene.run_command("flush")
    before = len(scene.sent_operations(Ping))
    scene.broker.set_faults(NO_PONG)
    _require_that_flush_waits(scene, before)


@scenario("CLIENT-CORE-009", needs=["publish.flush", "reconnect", "ping"])
def the_pong_of_an_earlier_ping_ends_no_flush(scene: NatsScene) -> None:
    """A PING of the library's own is unanswered when the user flushes: its PONG does not end the flush."""
    scene.connect(reconnect=True, ping_ms=PING_MS, pings_out=PINGS_OUT)
    scene.run_command("flush")
    before = len(scene.sent_operations(Ping))
    scene.broker.set_faults(NO_PONG)
    scene.require(
        scene.await_wire(lambda: len(scene.sent_operations(Ping)) > before),
        "the library sends no PING of its own",
        expected=f"a PING each {PING_MS} ms",
        actual="no PING",
    )
    _require_that_flush_waits(scene, before)


@scenario("CLIENT-CORE-009", needs=["publish.flush"])
def a_flush_without_pong_is_no_success(scene: NatsScene) -> None:
    """The connection is lost while flush waits for PONG: it must not end as if PONG had come."""
    scene.connect()
    scene.run_command("flush")
    before = len(scene.sent_operations(Ping))
    scene.broker.set_faults(NO_PONG)
    with scene.act_during(lambda: _is_flushing(scene, before), scene.broker.close_connections):
        result = _publish_and_flush(scene, NO_ANSWER_MS)
    expect_error(scene, "a flush whose connection was lost before PONG", result)


def _require_that_flush_waits(scene: NatsScene, before: int) -> None:
    """Evidence: a flush ends after the PONG of a PING that follows the message, and not while only the PINGs
    before it are answered. There were ``before`` PINGs so far; none is answered from now on."""
    ended = threading.Event()
    ended_early: list[bool] = []

    def answer() -> None:
        # A PONG that comes before the library is in its flush proves nothing. No PING may follow at all.
        scene.await_wire(lambda: _pings_behind(scene), HELD_S)
        answered = len(scene.received_operations(Pong))
        earlier = len(scene.sent_operations(Ping)) - len(_pings_behind(scene)) - answered
        if earlier:
            scene.broker.inject(Pong.make().raw * earlier)
        ended_early.append(ended.wait(HELD_S))
        scene.broker.set_faults()
        later = len(scene.sent_operations(Ping)) - answered - earlier
        if later:
            scene.broker.inject(Pong.make().raw * later)

    with scene.act_during(lambda: _is_flushing(scene, before), answer):
        result = _publish_and_flush(scene)
        ended.set()
    sent = "; ".join(str(seen.operation) for seen in scene.sent_operations(Pub, HPub, Ping))
    scene.require(
        ended_early == [False],
        "flush ends before a PING that follows the message is answered",
        expected=f"PUB {SUBJECT}, PING, and flush waits for PONG",
        actual=f"flush ended without that PONG; sent: {sent}",
        at=next(iter(_messages(scene)), None),
    )
    expect_success(scene, "flush after its PONG", result)


def _publish_and_flush(scene: NatsScene, timeout_ms: int = FLUSH_WITHIN_MS) -> AdapterAnswer:
    return scene.try_command("publish", subject=SUBJECT, data="one", flush=True, timeout_ms=timeout_ms)


def _is_flushing(scene: NatsScene, before: int) -> bool:
    """Whether message and PING are sent, in whatever order."""
    return len(scene.sent_operations(Ping)) > before and bool(_messages(scene))


def _messages(scene: NatsScene) -> list[Observation]:
    """What was published before the flush."""
    sent = scene.sent_operations(Pub, HPub)
    return [one for one in sent if isinstance(one.operation, Pub | HPub) and one.operation.subject == SUBJECT]


def _pings_behind(scene: NatsScene) -> list[Observation]:
    """The PINGs that follow the message, in order; there is one connection."""
    messages = _messages(scene)
    return [seen for seen in scene.sent_operations(Ping) if messages and seen.index > messages[-1].index]
