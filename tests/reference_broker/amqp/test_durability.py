"""What survives: journals cut anywhere, orderly ends and crashes, and ``kill -9`` of a running broker."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from plumbline.reference_broker.amqp.config import NS
from plumbline.reference_broker.amqp.storage.records import JOURNAL
from plumbline.wire.amqp import Method
from tests.patience import HANGS_AFTER_S
from tests.reference_broker.amqp.player import Player
from tests.reference_broker.amqp.virtual import Client, Virtual

PERSISTENT = {"delivery_mode": 2}
COMMAND = [sys.executable, "-m", "plumbline", "broker", "amqp", "-p", "-1"]


def restarted(virtual: Virtual, *, in_order: bool = False) -> tuple[Virtual, Client]:
    """The next broker on the same disk, and a client of it."""
    if in_order:
        virtual.carry_out(virtual.broker.stop(virtual.now))
    after = Virtual(files=virtual.files)
    assert after.warnings == []
    return after, after.client()


def test_durable_queues_exchanges_and_bindings_survive_and_others_do_not() -> None:
    virtual = Virtual(files={})
    client = virtual.client()
    for name, durable in (("d", True), ("t", False)):
        client.send("queue.declare", queue=name, durable=durable, arguments={"x-max-length": 7})
        client.send("exchange.declare", exchange=f"x-{name}", type="topic", durable=durable)
        client.send("queue.bind", queue=name, exchange=f"x-{name}", routing_key="k.#")
        client.send("queue.bind", queue=name, exchange="x-d", routing_key=name)
    client.send("exchange.bind", destination="x-d", source="amq.fanout")
    _, client = restarted(virtual)
    arguments = {"x-max-length": 7}
    assert client.ask("queue.declare", queue="d", durable=True, arguments=arguments)[0].method == (
        "queue.declare-ok"
    )
    client.publish("k.a", "1", exchange="x-d")
    client.publish("d", "2", exchange="x-d")
    client.publish("k", "3", exchange="amq.fanout")
    assert client.drain("d") == [("1", False), ("2", False), ("3", False)]
    client.take()
    for method, named in (("queue.declare", {"queue": "t"}), ("exchange.declare", {"exchange": "x-t"})):
        (answer,) = client.ask(method, 1, passive=True, **named)
        assert isinstance(answer, Method)
        assert answer.arguments["reply_code"] == 404
        client.send("channel.close-ok")
        client.ask("channel.open")


@pytest.mark.parametrize("in_order", [True, False])
def test_persistent_messages_survive_in_order(in_order: bool) -> None:
    virtual = Virtual(files={})
    client = virtual.client()
    client.send("queue.declare", queue="q", durable=True)
    client.publish("q", "p1", "p2", "p3", properties=PERSISTENT)
    client.publish("q", "t1")
    client.publish("q", "t2", properties={"delivery_mode": 1})
    client.publish("q", "p4", properties=PERSISTENT)
    for _ in range(2):
        client.get("q", no_ack=False)
    client.send("basic.ack", delivery_tag=2)
    _, client = restarted(virtual, in_order=in_order)
    seen = not in_order  # after a crash it is unknown what was delivered
    assert client.drain("q") == [("p1", True), ("p3", seen), ("p4", seen)]


def test_the_second_restart_finds_what_the_first_did() -> None:
    virtual = Virtual(files={})
    client = virtual.client()
    client.send("queue.declare", queue="q", durable=True)
    client.publish("q", "1", "2", properties=PERSISTENT)
    between, client = restarted(virtual, in_order=True)
    client.publish("q", "3", properties=PERSISTENT)
    assert client.get("q", no_ack=True) == ("1", False)
    _, client = restarted(between, in_order=True)
    assert client.drain("q") == [("2", False), ("3", False)]


def test_removed_messages_are_not_restored() -> None:
    virtual = Virtual(files={})
    client = virtual.client()
    client.send("queue.declare", queue="dead", durable=True)
    arguments = {"x-max-length": 2, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    client.send("queue.declare", queue="q", durable=True, arguments=arguments)
    client.publish("q", "overflows", "is rejected", "is purged", properties=PERSISTENT)
    client.get("q", no_ack=False)
    client.send("basic.reject", delivery_tag=1)
    client.send("queue.purge", queue="q")
    client.publish("q", "expires", properties={**PERSISTENT, "expiration": "10"})
    virtual.pass_time(1)
    after, client = restarted(virtual)
    assert client.drain("q") == []
    assert [body for body, _ in client.drain("dead")] == ["overflows", "is rejected", "expires"]
    client.send("queue.delete", queue="dead")
    _, client = restarted(after)
    assert client.ask("queue.declare", queue="dead", passive=True)[0].method == "channel.close"


@pytest.mark.parametrize("by_binding", [False, True])
def test_what_expired_while_the_broker_was_down_is_dead_lettered(by_binding: bool) -> None:
    virtual = Virtual(files={})
    client = virtual.client()
    exchange = "amq.direct" if by_binding else ""
    arguments = {"x-dead-letter-exchange": exchange, "x-dead-letter-routing-key": "dead"}
    client.send("queue.declare", queue="q", durable=True, arguments=arguments)
    client.send("queue.declare", queue="dead", durable=True)
    client.send("queue.bind", queue="dead", exchange="amq.direct", routing_key="dead")
    client.publish("q", "1", "2", properties={**PERSISTENT, "expiration": "1000"})
    after = Virtual(files=virtual.files, now=virtual.now + 2 * NS)
    assert [body for body, _ in after.client().drain("dead")] == ["1", "2"]


def test_a_journal_cut_anywhere_gives_a_beginning_of_what_was() -> None:
    virtual = Virtual(files={})
    client = virtual.client()
    client.send("queue.declare", queue="q", durable=True)
    before = len(virtual.files[JOURNAL])
    for number in range(5):
        client.publish("q", str(number), properties=PERSISTENT)
    data = virtual.files[JOURNAL]
    for cut in range(before, len(data)):
        after = Virtual(files={JOURNAL: data[:cut]})
        got = [body for body, _ in after.client().drain("q")]
        assert got == list(map(str, range(len(got))))
        assert len(got) < 5
        whole = len(Virtual(files=after.files).warnings) == 0
        assert whole, "the damaged end was not cut off"


def test_damaged_journal_is_cut_and_reported() -> None:
    virtual = Virtual(files={})
    client = virtual.client()
    client.send("queue.declare", queue="q", durable=True)
    client.publish("q", "1", properties=PERSISTENT)
    at = len(virtual.files[JOURNAL])
    client.publish("q", "2", properties=PERSISTENT)
    data = bytearray(virtual.files[JOURNAL])
    data[-1] ^= 1
    after = Virtual(files={JOURNAL: bytes(data)})
    assert after.warnings == [
        f"{JOURNAL} is damaged from byte {at} on: its last {len(data) - at} bytes are left out"
    ]
    assert after.client().drain("q") == [("1", True)]


def test_a_transaction_survives_whole_or_not_at_all() -> None:
    virtual = Virtual(files={})
    client = virtual.client()
    client.send("queue.declare", queue="q", durable=True)
    client.send("tx.select")
    client.publish("q", "1", "2", "3", properties=PERSISTENT)
    before = len(virtual.files[JOURNAL])
    client.send("tx.commit")
    data = virtual.files[JOURNAL]
    for cut in range(before, len(data)):
        assert Virtual(files={JOURNAL: data[:cut]}).client().drain("q") == []
    assert len(Virtual(files={JOURNAL: data}).client().drain("q")) == 3


def test_a_journal_that_grows_is_written_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plumbline.reference_broker.amqp.storage.store.GROWS_TO", 1000)
    virtual = Virtual(files={})
    client = virtual.client()
    client.send("queue.declare", queue="q", durable=True)
    client.publish("q", "stays", properties=PERSISTENT)
    client.get("q", no_ack=False)  # outstanding, and still to survive
    for number in range(200):
        client.publish("q", str(number), properties=PERSISTENT)
        client.get("q")
    assert len(virtual.files[JOURNAL]) < 3000
    assert restarted(virtual)[1].drain("q") == [("stays", True)]


@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_a_full_queue_that_rejects_takes_back_what_was_not_acknowledged(overflow: str) -> None:
    virtual = Virtual(files={})
    client, other = virtual.client(), virtual.client()
    arguments = {"x-max-length": 1, "x-overflow": overflow}
    client.send("queue.declare", queue="q", durable=True, arguments=arguments)
    client.publish("q", "1", properties=PERSISTENT)
    assert other.get("q", no_ack=False) == ("1", False)
    client.publish("q", "2", properties=PERSISTENT)
    other.leave()
    assert restarted(virtual)[1].drain("q") == [("1", True), ("2", True)]


@contextmanager
def running(folder: Path) -> Iterator[tuple[subprocess.Popen[str], Player]]:
    """A broker that keeps its data in ``folder``, and an open connection to it."""
    with subprocess.Popen([*COMMAND, "-d", str(folder)], stdout=subprocess.PIPE, text=True) as broker:
        try:
            assert broker.stdout is not None
            player = Player(broker.stdout.readline().split()[0])
            with closing(player.connect().socket):
                yield broker, player
        finally:
            broker.kill()


def test_confirmed_messages_survive_kill_minus_nine(tmp_path: Path) -> None:
    bodies = [str(number) for number in range(2000)]
    with running(tmp_path) as (broker, player):
        player.queue("q", durable=True)
        player.ask("confirm.select")
        player.publish("q", *bodies, properties=PERSISTENT)
        confirmed = 0
        while confirmed < 500:
            (link,) = player.links.values()
            link.read(3.0)
            for ack in link.arrived:
                assert isinstance(ack, Method)
                confirmed = max(confirmed, ack.arguments["delivery_tag"])
        broker.kill()
    with running(tmp_path) as (broker, player):
        (answer,) = player.ask("queue.declare", queue="q", passive=True)
        assert isinstance(answer, Method)
        survived = answer.arguments["message_count"]
        assert survived >= confirmed
        player.send("basic.consume", queue="q", consumer_tag="c", no_ack=True)
        came = [one for one in player.take(survived + 1) if isinstance(one, Method)][1:]
        assert [one.body.decode() for one in came] == bodies[:survived]
        broker.terminate()
        assert broker.wait(HANGS_AFTER_S) == 0
