"""Who listens to a push consumer, seen through the whole core: SUB, UNSUB, limits, connections that end."""

from __future__ import annotations

import msgspec
import pytest

from tests.reference_broker.jetstream.disk import Kept
from tests.reference_broker.virtual import Client, Virtual


@pytest.fixture
def virtual() -> Virtual:
    """A stream ``S`` on ``s`` with a push consumer ``P`` to ``dlv`` that needs no acknowledgement."""
    virtual = Virtual(jetstream=True)
    stage = virtual.client()
    request(stage, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "storage": "memory"})
    create(stage)
    return virtual


def create(client: Client, **config: object) -> None:
    whole = {"durable_name": "P", "deliver_subject": "dlv", "ack_policy": "none", **config}
    request(client, "CONSUMER.CREATE.S.P", {"stream_name": "S", "config": whole})


def request(client: Client, verb: str, body: object = None) -> dict[str, object]:
    payload = msgspec.json.encode(body).decode() if body is not None else ""
    (answer,) = [
        text
        for text in client.ask(
            f"SUB api.reply api\nPUB $JS.API.{verb} api.reply {len(payload)}\n{payload}\nUNSUB api"
        )
        if text.startswith("MSG api.reply")
    ]
    decoded: dict[str, object] = msgspec.json.decode(answer.partition(" | ")[2].encode())
    assert "error" not in decoded, decoded
    return decoded


def is_bound(virtual: Virtual) -> bool:
    return "push_bound" in request(virtual.client(), "CONSUMER.INFO.S.P")


def publish(virtual: Virtual, payload: str) -> None:
    virtual.client().send(f"PUB s {len(payload)}\n{payload}")


def payloads(client: Client) -> list[str]:
    return [text.rpartition(" | ")[2] for text in client.take() if text.startswith("MSG s ")]


def test_a_subscription_binds_until_it_ends(virtual: Virtual) -> None:
    client = virtual.client()
    client.send("SUB dlv 1")
    assert is_bound(virtual)
    client.send("UNSUB 1")
    assert not is_bound(virtual)


def test_unsub_is_noticed_before_what_follows_in_the_same_segment(virtual: Virtual) -> None:
    client = virtual.client()
    client.send("SUB dlv 1")
    client.send("UNSUB 1\nPUB s 1\na\nSUB dlv 2")
    assert payloads(client) == ["a"]


def test_closed_connection_ends_interest(virtual: Virtual) -> None:
    client = virtual.client()
    client.send("SUB dlv 1")
    client.leave()
    assert not is_bound(virtual)


def test_refused_connection_ends_interest(virtual: Virtual) -> None:
    client = virtual.client()
    client.send("SUB dlv 1\nNONSENSE")
    assert not is_bound(virtual)


def test_the_last_of_several_subscribers_counts(virtual: Virtual) -> None:
    first, second = virtual.client(), virtual.client()
    first.send("SUB dlv 1")
    second.send("SUB dlv 1")
    first.leave()
    assert is_bound(virtual)
    publish(virtual, "a")
    assert payloads(second) == ["a"]
    second.send("UNSUB 1")
    assert not is_bound(virtual)


def test_a_subscription_with_a_limit_binds_for_so_many_messages(virtual: Virtual) -> None:
    client = virtual.client()
    client.send("SUB dlv 1\nUNSUB 1 2")
    for payload in "abc":
        publish(virtual, payload)
    assert payloads(client) == ["a", "b"]
    assert not is_bound(virtual)
    client.send("SUB dlv 2")
    assert payloads(client) == ["c"]


@pytest.mark.parametrize("subscription", ["SUB dl* 1", "SUB > 1", "SUB * 1", "SUB dlv grp 1", "SUB DLV 1"])
def test_only_matching_queue_subscribers_activate_push_consumer(virtual: Virtual, subscription: str) -> None:
    virtual.client().send(subscription)
    assert not is_bound(virtual)


def test_wildcard_subscriber_also_receives_deliveries(virtual: Virtual) -> None:
    curious, client = virtual.client(), virtual.client()
    curious.send("SUB > 1")
    client.send("SUB dlv 1")
    publish(virtual, "a")
    assert payloads(client) == ["a"]
    assert payloads(curious) == ["a", "a"]  # as it was published, and as it was delivered


@pytest.mark.parametrize(("queue", "binds"), [("grp", True), ("other", False), ("", False)])
def test_a_group_is_bound_by_its_members(virtual: Virtual, queue: str, binds: bool) -> None:
    create(virtual.client(), deliver_group="grp")
    virtual.client().send(f"SUB dlv {queue} 1".replace("  ", " "))
    assert is_bound(virtual) is binds


def test_members_share_and_one_that_leaves_leaves_its_share_to_the_rest(virtual: Virtual) -> None:
    create(virtual.client(), deliver_group="grp")
    members = [virtual.client() for _ in range(2)]
    for member in members:
        member.send("SUB dlv grp 1")
    for number in range(40):
        publish(virtual, f"{number:02}")
    shares = [payloads(member) for member in members]
    assert sorted(shares[0] + shares[1]) == [f"{number:02}" for number in range(40)]
    assert all(shares)
    members[0].leave()
    for number in range(5):
        publish(virtual, f"{number}")
    assert payloads(members[1]) == ["0", "1", "2", "3", "4"]


def test_nothing_is_remembered_of_subscriptions_that_have_ended(virtual: Virtual) -> None:
    client = virtual.client()
    for number in range(100):
        client.send(f"SUB inbox.{number} {number}\nUNSUB {number}")
    assert virtual.broker.router.ended == []


# After a restart


def restarted(kept: Kept) -> Kept:
    return Kept(kept.files, now=kept.now)


def with_push_consumer(**config: object) -> Kept:
    """A stream in files, three messages, and a push consumer with acknowledgements."""
    kept = Kept()
    stage = kept.client()
    request(stage, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "storage": "file"})
    create(stage, **{"ack_policy": "explicit", **config})
    for payload in "abc":
        publish(kept, payload)
    return kept


def test_a_durable_push_consumer_goes_on_after_a_restart() -> None:
    kept = with_push_consumer()
    client = kept.client()
    client.send("SUB dlv 1")
    acks = [text.split()[3] for text in client.take()]
    client.send(f"PUB {acks[0]} 0\n\nPUB {acks[1]} 0\n")
    kept = restarted(kept)
    assert not is_bound(kept)
    publish(kept, "d")
    client = kept.client()
    client.send("SUB dlv 1")
    assert payloads(client) == ["d"]
    kept.pass_time(30)
    assert payloads(client) == ["c", "d"]  # neither was acknowledged, whichever side of the restart


def test_heartbeats_go_on_after_a_restart() -> None:
    kept = restarted(with_push_consumer(idle_heartbeat=1_000_000_000))
    client = kept.client()
    client.send("SUB dlv 1")
    client.take()
    kept.pass_time(1)
    (beat,) = client.take()
    assert "100 Idle Heartbeat" in beat
    assert "Nats-Last-Consumer: 3" in beat


def test_unacked_flow_control_messages_are_not_redelivered_after_restart() -> None:
    kept = with_push_consumer(ack_policy="flow_control", ack_wait=0)
    client = kept.client()
    client.send("SUB dlv 1")
    assert len(payloads(client)) == 3
    kept = restarted(kept)
    client = kept.client()
    client.send("SUB dlv 1")
    kept.pass_time(60)
    assert payloads(client) == []


def test_ephemeral_push_consumer_without_subscriber_is_deleted_after_restart() -> None:
    kept = with_push_consumer(durable_name="", name="P", inactive_threshold=5_000_000_000)
    kept = restarted(kept)
    kept.pass_time(4)
    assert not is_bound(kept)
    kept.pass_time(2)
    answer = kept.client().ask("SUB inbox 1\nPUB $JS.API.CONSUMER.INFO.S.P inbox 0\n")
    assert '"err_code":10014' in answer[0]
