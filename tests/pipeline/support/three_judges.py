"""One session for each protocol in which client and server both break rules, seen by two judges at once.

The client is played by the gate; between the gate's own watching proxy and the client stands
``plumbline record --live``, whose captures are for ``plumbline judge``.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from plumbline.cli.scenario_services import ScenarioServices
from plumbline.conformance.check import Check
from plumbline.conformance.clients.gate import catalogue
from plumbline.conformance.clients.play import ScenarioPlayer
from plumbline.conformance.clients.protocol import AdapterHello
from plumbline.conformance.clients.scenario import BrokerSetup, Scenario
from plumbline.conformance.clients.scene import Scene
from plumbline.monitors import MonitorRunner, Place, Violation
from plumbline.verdicts import Outcome
from plumbline.wire import nats
from plumbline.wire.amqp import PROTOCOL_HEADER, Method

CLIENT = (sys.executable, "-m", "tests.pipeline.support.bare_client")
PATIENCE_S = 300.0


class Session(Struct, frozen=True):
    """One session as it was judged. ``gate``: what it holds against the client; ``wire``: what its monitors
    found of both sides; ``live``: what the recorder printed."""

    gate: tuple[Violation, ...]
    wire: tuple[Violation, ...]
    live: str
    captures: Path


def played(protocol: str, captures: Path) -> Session:
    """Plays the session of that protocol once."""
    defect, requirement, session = _SESSIONS[protocol]
    check = Check(f"three::{protocol}", "Both sides break rules.", (requirement,), session)
    stands = _Recorded(captures)
    player = ScenarioPlayer((*CLIENT, protocol), {}, stands, catalogue())
    hello = AdapterHello("plumbline.adapter/1", protocol, "bare", "1", frozenset())
    one = player.play(Scenario(check, protocol, (), BrokerSetup(_OPTIONS[protocol], (defect,))), hello)
    assert one.result.outcome is Outcome.PASSED, (one.result.message, one.result.actual, stands.live)
    assert one.traffic is not None
    watch = MonitorRunner()
    found = tuple(violation for seen in stands.seen for violation in watch.observe(seen))
    return Session(one.traffic.violations, found, stands.live, captures)


def untimed(violation: Violation) -> Violation:
    """The same without times: each proxy has its own."""

    def at_no_time(place: Place) -> Place:
        return msgspec.structs.replace(place, at=0)

    earlier = tuple(map(at_no_time, violation.earlier))
    return msgspec.structs.replace(violation, place=at_no_time(violation.place), earlier=earlier)


class _Recorded(ScenarioServices):
    """The gate's scenario brokers, each behind a recording proxy whose address the clients get."""

    def __init__(self, captures: Path) -> None:
        super().__init__()
        self._captures = captures
        self.seen: list[Any] = []
        self.live = ""

    @contextmanager
    def scenario_broker(self, protocol: str, stage: BrokerSetup) -> Iterator[Any]:
        with super().scenario_broker(protocol, stage) as stand:
            options = ["--listen", "127.0.0.1:0", "-o", str(self._captures), "--live"]
            words = [sys.executable, "-m", "plumbline", "record", stand.url, *options]
            with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as recorder:
                assert recorder.stdout is not None
                try:
                    yield _Stand(stand, recorder.stdout.readline().split()[0])
                finally:
                    recorder.send_signal(signal.SIGINT)
                    self.live = recorder.communicate(timeout=PATIENCE_S)[0]
                    self.seen = list(stand.observations)


class _Stand:
    """A stand whose clients go through the recorder."""

    def __init__(self, stand: Any, url: str) -> None:
        self._stand, self.url = stand, url

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stand, name)


# -- the sessions ----------------------------------------------------------------------------


def _say(scene: Scene, *operations: nats.Operation | Method | bytes, until: str, count: int = 1) -> None:
    """Sends these, and waits until the client has got what answers them: so there is one order only."""
    data = b"".join(one if isinstance(one, bytes) else one.raw for one in operations)
    scene.run_command("say", within=PATIENCE_S, data=data.decode("latin-1"), until=until, count=count)


def _connect(scene: Scene) -> None:
    scene.run_command("connect", within=PATIENCE_S, url=scene.broker.url)


def _close(scene: Scene) -> None:
    scene.run_command("close", within=PATIENCE_S)
    scene.observations += 1


def _nats(scene: Scene) -> None:
    """A redelivery that counts as the first; a message that is acknowledged twice."""

    def ask(subject: str, body: Any) -> nats.Operation:
        return nats.Pub.make(f"$JS.API.{subject}", json.dumps(body).encode(), "in.api")

    def delivered() -> str:
        messages = [one.operation for one in scene.received_operations(nats.Msg)]
        (*_, last) = (one.reply for one in messages if isinstance(one, nats.Msg) and one.sid == "2")
        return str(last)

    _connect(scene)
    _say(scene, until="INFO")
    _say(
        scene,
        nats.Connect.make({"verbose": False, "headers": True, "no_responders": True}),
        nats.Sub.make("in.api", "1"),
        nats.Sub.make("in.pull", "2"),
        nats.Ping.make(),
        until="PONG",
    )
    _say(scene, ask("STREAM.CREATE.S", {"name": "S", "subjects": ["orders"]}), until="MSG")
    consumer = {"stream_name": "S", "config": _CONSUMER}
    _say(scene, ask("CONSUMER.DURABLE.CREATE.S.C", consumer), until="MSG")
    _say(scene, nats.Pub.make("orders", b"one", "in.api"), until="MSG")
    _say(scene, nats.Pub.make("$JS.API.CONSUMER.MSG.NEXT.S.C", b'{"batch":9}', "in.pull"), until="MSG")
    _say(scene, nats.Pub.make(delivered(), b"-NAK"), until="MSG")
    acknowledged = nats.Pub.make(delivered(), b"+ACK")
    _say(scene, acknowledged, acknowledged, nats.Ping.make(), until="PONG")
    _close(scene)


def _amqp(scene: Scene) -> None:
    """Delivery tags that leave one out; an acknowledgement of the one that was left out."""
    _connect(scene)
    _say(scene, PROTOCOL_HEADER, until="connection.start")
    plain: Any = {"mechanism": "PLAIN", "response": b"\0guest\0guest", "locale": "en_US"}
    start_ok = Method.make("connection.start-ok", client_properties={}, **plain)
    _say(scene, start_ok, until="connection.tune")
    tune_ok = Method.make("connection.tune-ok", channel_max=9, frame_max=131072, heartbeat=0)
    _say(scene, tune_ok, Method.make("connection.open", virtual_host="/"), until="connection.open-ok")
    _say(scene, Method.make("channel.open", 1), until="channel.open-ok")
    _say(scene, Method.make("queue.declare", 1, queue="q"), until="queue.declare-ok")
    bodies = (b"one", b"two")
    publish = (Method.make("basic.publish", 1, routing_key="q", properties={}, body=body) for body in bodies)
    consume = Method.make("basic.consume", 1, queue="q", consumer_tag="c")
    _say(scene, *publish, consume, until="basic.deliver", count=2)
    _say(scene, Method.make("basic.ack", 1, delivery_tag=2), until="channel.close")
    close = Method.make("connection.close", reply_code=200, reply_text="", class_id=0, method_id=0)
    _say(scene, Method.make("channel.close-ok", 1), close, until="connection.close-ok")
    _close(scene)


# A busy machine takes its time: the broker must not ask, close or deliver again meanwhile.
_OPTIONS = {"nats": {"ping_interval": 3600.0}, "amqp": {"handshake_timeout": 3600.0}}
_CONSUMER = {"durable_name": "C", "ack_policy": "explicit", "ack_wait": 3600 * 10**9}

# The broker's defect, the requirement that the client breaks, the operations.
_SESSIONS: dict[str, tuple[str, str, Callable[[Any], None]]] = {
    "nats": ("redelivery-counts-as-the-first", "CLIENT-ACK-010", _nats),
    "amqp": ("delivery-tags-skip", "CLIENT-SETTLE-001", _amqp),
}
