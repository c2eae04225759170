"""Scenarios about pull requests and what consumers deliver, played on real servers and on the reference."""

from __future__ import annotations

from typing import Any

from plumbline.wire.nats import Pub
from tests.reference_broker.jetstream.player import UNTIL_STATUS, Player, Scenario

MS = 1_000_000
S = 1_000_000_000


def no_wait(p: Player) -> None:
    """ADR-13, "No Wait Pull Requests"."""
    p.stream("bar", subjects=["bar"])
    p.consumer("bar", "dur")
    p.pull("bar", "dur", {"batch": 1, "no_wait": True}, expect=1)
    p.state("bar", "dur")
    p.publish("bar", "1", "2", "3")
    p.await_pending("bar", "dur", 3)
    p.pull("bar", "dur", {"batch": 1, "no_wait": True}, expect=1)
    p.pull("bar", "dur", {"batch": 5, "no_wait": True}, expect=3)
    p.state("bar", "dur")
    p.pull("bar", "dur", {"batch": 2, "no_wait": True, "expires": 300 * MS}, expect=1)
    p.pull_quietly("bar", "dur", {"batch": 3, "no_wait": True, "expires": 800 * MS})
    p.wait(0.1)
    p.publish("bar", "4")
    p.expect(2)
    p.state("bar", "dur")


def waiting(p: Player) -> None:
    """max_waiting, expiry, num_waiting, statuses of each request."""
    p.stream("bar", subjects=["bar"])
    p.consumer("bar", "dur", max_waiting=2)
    p.pull_quietly("bar", "dur")
    p.pull("bar", "dur", expect=0)
    p.state("bar", "dur")
    p.pull("bar", "dur", expect=1)
    p.state("bar", "dur")
    p.pull("bar", "dur", {"batch": 1, "expires": 1200 * MS, "idle_heartbeat": 500 * MS}, expect=0)
    for payload in ("a", "b"):
        p.publish("bar", payload)
        p.expect(1)
    p.state("bar", "dur")
    p.pull_quietly("bar", "dur", {"batch": 2, "expires": 300 * MS})
    p.pull_quietly("bar", "dur", {"batch": 2, "expires": 300 * MS})
    p.expect(2)
    p.state("bar", "dur")
    p.pull_quietly("bar", "dur", {"batch": 5, "expires": 400 * MS})
    p.publish("bar", "c")
    p.expect(2)
    p.pull("bar", "dur", {"batch": 5, "max_bytes": 1000, "expires": 300 * MS}, expect=1)
    p.pull("bar", "dur", {"batch": 1, "expires": -5}, expect=1)
    p.pull("bar", "dur", {"batch": -1, "expires": 200 * MS}, expect=1)
    p.state("bar", "dur")


def turns(p: Player) -> None:
    """Two lingering requests are served in turn."""
    p.stream("bar", subjects=["bar"])
    p.consumer("bar", "dur")
    p.pull_quietly("bar", "dur", {"batch": 3}, inbox="one")
    p.pull("bar", "dur", {"batch": 3}, inbox="two", expect=0)
    p.subscribe("_INBOX.p.one", 11)
    p.subscribe("_INBOX.p.two", 12)
    for payload in ("n0", "n1", "n2", "n3"):
        p.publish("bar", payload)
        for message in p.take(2):
            if message.sid != "1":
                p.log.append(f"< {message.sid} {message.payload.decode()}")


def interest(p: Player) -> None:
    """Requests whose inbox is gone take nothing."""
    p.stream("bar", subjects=["bar"])
    p.consumer("bar", "dur")
    p.subscribe("_INBOX.x.1", 5)
    p.log.append("> pull on an inbox that goes")
    p.write(Pub.make("$JS.API.CONSUMER.MSG.NEXT.bar.dur", b"3", "_INBOX.x.1"))
    p.flush()
    p.publish("bar", "m1")
    p.expect(1)
    p.unsubscribe(5)
    p.publish("bar", "m2")
    p.expect(0)
    p.state("bar", "dur")
    p.pull("bar", "dur", expect=1)
    p.state("bar", "dur")
    p.subscribe("_INBOX.x.2", 6, max_msgs=2)
    p.write(Pub.make("$JS.API.CONSUMER.MSG.NEXT.bar.dur", b"5", "_INBOX.x.2"))
    for payload, count in (("m3", 1), ("m4", 1), ("m5", 0)):
        p.publish("bar", payload)
        p.expect(count)
    p.state("bar", "dur")


def bodies(p: Player) -> None:
    """What a pull request may be."""
    p.stream("bar", subjects=["bar"])
    p.consumer("bar", "dur")
    p.publish("bar", *(str(n) for n in range(1, 13)))
    p.await_pending("bar", "dur", 12)
    for body, expect in [
        (b"", 1), (b"{}", 1), (b" 2 ", 2), (b"garbage", 1), (b'{"batch":0}', 1),
        (b'{"expires":100000000}', 1),
        (b'{"batch":1,"unknown_key":1}', 1), (b"{bad", 1), (b'{"batch":"x"}', 1),
        (b'{"batch":1,"idle_heartbeat":1000000000,"expires":1500000000}', 1),
        (b'{"batch":1,"idle_heartbeat":1000000000}', 1),
    ]:  # fmt: skip
        p.pull("bar", "dur", body, expect=expect)
    p.state("bar", "dur")
    p.log.append("> pull without reply")
    p.write(Pub.make("$JS.API.CONSUMER.MSG.NEXT.bar.dur", b"1"))
    p.state("bar", "dur")


def refusals(p: Player) -> None:
    """409s, and requests without a consumer."""
    p.stream("bar", subjects=["bar"])
    p.consumer("bar", "lim", max_batch=5, max_expires=S, max_bytes=100)
    p.pull("bar", "lim", {"batch": 6}, expect=1)
    p.pull("bar", "lim", {"batch": 1, "expires": 5 * S}, expect=1)
    p.pull("bar", "lim", {"batch": 1, "max_bytes": 200, "expires": 500 * MS}, expect=1)
    p.consumer("bar", "push", deliver_subject="dlv")
    p.pull("bar", "push", expect=1)
    p.request("$JS.API.CONSUMER.MSG.NEXT.bar.NOPE")
    p.request("$JS.API.CONSUMER.MSG.NEXT.NOSTR.NOPE")
    p.consumer("bar", "del")
    p.pull_quietly("bar", "del", {"batch": 2, "expires": 3 * S})
    p.flush()
    p.api("CONSUMER.DELETE.bar.del")
    p.expect(1)
    p.pull_quietly("bar", "lim", {"batch": 2, "expires": 900 * MS})
    p.pull_quietly("bar", "lim", {"batch": 2})
    p.flush()
    p.api("STREAM.DELETE.bar")
    p.expect(2)


def byte_limits(p: Player) -> None:
    """max_bytes of a request counts subject, reply and payload."""
    p.stream("mb", subjects=["mb"])
    p.consumer("mb", "m")
    p.publish("mb", *["0123456789" * 5] * 4)
    p.await_pending("mb", "m", 4)
    p.pull("mb", "m", {"batch": 5, "max_bytes": 250, "expires": 500 * MS}, expect=3)
    p.consumer("mb", "m2")
    p.pull("mb", "m2", {"batch": 1, "max_bytes": 10, "expires": 500 * MS}, expect=1)
    p.state("mb", "m2")
    p.pull(
        "mb",
        "m2",
        {"batch": 1, "max_bytes": 10000, "expires": 500 * MS},
        expect=2 if p.version >= "2.15" else 1,
    )
    p.state("mb", "m2")


def heartbeats(p: Player) -> None:
    """idle_heartbeat of a pull request."""
    p.stream("bar", subjects=["bar"])
    p.consumer("bar", "dur")
    p.pull("bar", "dur", {"batch": 1, "expires": 1100 * MS, "idle_heartbeat": 400 * MS}, expect=3)
    p.pull_quietly("bar", "dur", {"batch": 2, "expires": 1100 * MS, "idle_heartbeat": 400 * MS})
    p.publish("bar", "x")
    p.expect(4)


def filters(p: Player) -> None:
    """A filtered consumer counts its own messages; deleted ones are skipped."""
    p.stream("F", subjects=["f.*"])
    p.publish("f.a", "1", "2")
    p.publish("f.b", "3")
    p.publish("f.a", "4", "5")
    p.publish("f.b", "6", "7")
    p.consumer("F", "B", filter_subject="f.b")
    p.state("F", "B")
    p.pull("F", "B", b"2", expect=2)
    p.state("F", "B")
    p.ack(0, reply="ack", expect=1)
    p.state("F", "B")
    p.api("STREAM.MSG.DELETE.F", {"seq": 1})
    p.api("STREAM.MSG.DELETE.F", {"seq": 4})
    p.consumer("F", "ALL")
    p.state("F", "ALL")
    p.pull("F", "ALL", b"9", expect=5)
    p.state("F", "ALL")
    p.api("STREAM.PURGE.F", {"filter": "f.a"})
    p.stream_state("F")
    p.api("STREAM.PURGE.F")
    p.stream_state("F")
    p.state("F", "B")
    p.state("F", "ALL")
    p.publish("f.b", "8")
    p.expect(1)
    p.state("F", "ALL")


def start_positions(p: Player) -> None:
    """Deep dive, "Consumer Starting Position"."""
    p.stream("O", subjects=["o.*"])
    for n in range(1, 11):
        p.publish(f"o.{'ab'[n % 2]}", f"order {n}")
    positions: dict[str, dict[str, Any]] = {
        "all": {}, "last": {"deliver_policy": "last"}, "new": {"deliver_policy": "new"},
        "seq": {"deliver_policy": "by_start_sequence", "opt_start_seq": 4},
        "next": {"deliver_policy": "by_start_sequence", "opt_start_seq": 11},
        "beyond": {"deliver_policy": "by_start_sequence", "opt_start_seq": 12},
        "each": {"deliver_policy": "last_per_subject", "filter_subject": "o.*"},
        "lastb": {"deliver_policy": "last", "filter_subject": "o.b"},
        "past": {"deliver_policy": "by_start_time", "opt_start_time": "2020-01-01T00:00:00Z"},
        "future": {"deliver_policy": "by_start_time", "opt_start_time": "2099-01-01T00:00:00Z"},
    }  # fmt: skip
    for name, config in positions.items():
        p.consumer("O", name, **config)
        p.state("O", name)
        p.pull("O", name, {"batch": 20, "expires": 150 * MS}, expect=UNTIL_STATUS)
        p.state("O", name)
    p.publish("o.c", "order 11")
    for name in ("new", "next", "beyond", "each", "future"):
        p.pull("O", name, {"batch": 1, "expires": 300 * MS}, expect=1)
        p.state("O", name)


def ack_pending_limit(p: Player) -> None:
    """max_ack_pending holds delivery back until an ack."""
    p.stream("bar", subjects=["bar"])
    p.consumer("bar", "dur", max_ack_pending=2)
    p.publish("bar", "1", "2", "3", "4")
    p.await_pending("bar", "dur", 4)
    p.pull("bar", "dur", {"batch": 4, "expires": 1500 * MS}, expect=2)
    p.state("bar", "dur")
    p.ack(0)
    p.expect(1)
    p.ack(1, "-NAK")
    p.expect(1)
    p.expect(1)
    p.state("bar", "dur")
    p.pull("bar", "dur", {"batch": 1, "no_wait": True, "expires": 200 * MS}, expect=1)


def priority_groups(p: Player) -> None:
    """ADR-42: overflow, pinned and prioritized clients; older servers know nothing of it."""
    p.stream("S", subjects=["s"])
    variants: list[dict[str, Any]] = [
        {"priority_policy": "overflow"},
        {"priority_policy": "overflow", "priority_groups": [""]},
        {"priority_policy": "overflow", "priority_groups": ["a b"]},
        {"priority_policy": "overflow", "priority_groups": ["g"], "deliver_subject": "d"},
        {"priority_timeout": S},
        {"priority_policy": "pinned_client", "priority_groups": ["g"]},
    ]
    for number, config in enumerate(variants):
        p.consumer("S", f"V{number}", **config)
    p.consumer("S", "OVER", priority_policy="overflow", priority_groups=["g"])
    p.consumer("S", "PIN", priority_policy="pinned_client", priority_groups=["g"], priority_timeout=S)
    first = p.consumer("S", "FIRST", priority_policy="prioritized", priority_groups=["g"])
    p.publish("s", "1", "2", "3", "4")
    p.await_pending("S", "OVER", 4)
    soon: dict[str, Any] = {"batch": 1, "expires": 200 * MS}
    group = {**soon, "group": "g"}
    bodies: list[dict[str, Any]] = [
        soon, {**soon, "group": "x"}, {**group, "id": "x"}, {**group, "priority": 10}, group,
        {**group, "min_pending": 9}, {**group, "min_pending": 4}, {**group, "min_pending": 4},
        {**group, "min_ack_pending": 1}, group,
    ]  # fmt: skip
    for body in bodies:
        p.pull("S", "OVER", body, expect=1)
    p.pull("S", "PIN", group, expect=1)
    p.pull("S", "PIN", group, expect=1, inbox="b")
    p.pull("S", "PIN", {**group, "id": "x"}, expect=1)
    p.api("CONSUMER.INFO.S.PIN")
    p.wait(1.1)
    p.pull("S", "PIN", group, expect=1, inbox="b")
    p.api("CONSUMER.UNPIN.S.PIN", {"group": "g"})
    p.api("CONSUMER.UNPIN.S.PIN", {"group": "x"})
    p.pull("S", "PIN", group, expect=1)
    if "error" in first:
        return  # known from 2.12 on
    p.pull("S", "FIRST", {"batch": 4, "group": "g"}, expect=4)
    p.state("S", "FIRST")
    for priority in (5, 1):
        body = {**group, "batch": 2, "expires": 3 * S, "priority": priority}
        p.pull_quietly("S", "FIRST", body, inbox=str(priority))
    p.wait(0.1)
    p.subscribe("_INBOX.p.1", 11)
    p.subscribe("_INBOX.p.5", 15)
    for payload in ("5", "6", "7"):
        p.publish("s", payload)
        for message in p.take(2):
            if message.sid != "1":
                p.log.append(f"< {message.sid} {message.payload.decode()}")


SCENARIOS: list[Scenario] = [
    no_wait,
    waiting,
    turns,
    interest,
    bodies,
    refusals,
    byte_limits,
    heartbeats,
    filters,
    start_positions,
    priority_groups,
    ack_pending_limit,
]
