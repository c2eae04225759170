"""Scenarios about acknowledgements, counters and redelivery, played on real servers and on the reference."""

from __future__ import annotations

from tests.reference_broker.jetstream.player import Player, Scenario

MS = 1_000_000
S = 1_000_000_000


def walk_through(p: Player) -> None:
    """Deep dive, "Acknowledgement Models": the counters step by step."""
    p.stream("ORDERS", subjects=["ORDERS.*"], storage="file")
    p.consumer("ORDERS", "DISPATCH", ack_wait=500 * MS)
    p.stream_state("ORDERS")
    p.state("ORDERS", "DISPATCH")
    p.publish("ORDERS.processed", "order 4")
    p.await_pending("ORDERS", "DISPATCH", 1)
    p.state("ORDERS", "DISPATCH")
    p.stream_state("ORDERS")
    p.pull("ORDERS", "DISPATCH", expect=1)
    p.state("ORDERS", "DISPATCH")
    p.ack(0, reply="ack", expect=1)
    p.state("ORDERS", "DISPATCH")
    p.publish("ORDERS.processed", "order 5")
    p.pull("ORDERS", "DISPATCH", expect=1)
    p.state("ORDERS", "DISPATCH")
    p.pull("ORDERS", "DISPATCH", expect=1)
    p.state("ORDERS", "DISPATCH")
    p.pull("ORDERS", "DISPATCH", expect=1)
    p.state("ORDERS", "DISPATCH")
    p.ack(3, reply="ack", expect=1)
    p.state("ORDERS", "DISPATCH")
    p.api("STREAM.LIST")
    p.api("CONSUMER.LIST.ORDERS")


def ack_payloads(p: Player) -> None:
    """Every acknowledgement, with and without a reply."""
    p.stream("A", subjects=["a"])
    p.publish("a", "m1", "m2", "m3", "m4", "m5")
    payloads = [
        "",
        "+ACK",
        "+OK",
        "-NAK",
        "+WPI",
        "+TERM",
        "+TERM because",
        "+ACK ",
        "+ack",
        "junk",
        "-nak",
        "-NAK garbage",
    ]
    for number, payload in enumerate(payloads):
        name = f"C{number}"
        p.consumer("A", name)
        p.pull("A", name, expect=1)
        p.ack(len(p.acks) - 1, payload, reply="ack", expect=1)
        p.state("A", name)
        p.pull("A", name, expect=1)
        p.ack(len(p.acks) - 1, reply="ack", expect=1)
        p.ack(len(p.acks) - 1, "-NAK", reply="ack", expect=1)
        p.ack(len(p.acks) - 2, "+ACK", reply="ack", expect=1)
        p.state("A", name)


def next_payloads(p: Player) -> None:
    """+NXT in all its forms."""
    p.stream("A", subjects=["a"])
    p.publish("a", "m1", "m2", "m3", "m4", "m5")
    for number, (payload, expect) in enumerate(
        [
            ("+NXT", 1),
            ("+NXT 3", 3),
            ("+NXT3", 3),
            ('+NXT {"batch":2}', 2),
            ('+NXT {"no_wait":true}', 1),
            ("+NXT {bad", 1),
        ]
    ):
        name = f"N{number}"
        p.consumer("A", name)
        p.pull("A", name, expect=1)
        p.ack(len(p.acks) - 1, payload, reply="next", expect=expect)
        p.state("A", name)
    p.consumer("A", "LAST")
    p.pull("A", "LAST", b"5", expect=5)
    p.ack(len(p.acks) - 1, '+NXT {"no_wait":true}', reply="next", expect=1)
    p.state("A", "LAST")
    p.consumer("A", "SILENT")
    p.pull("A", "SILENT", expect=1)
    p.ack(len(p.acks) - 1, "+NXT")
    p.state("A", "SILENT")


def nak_delays(p: Player) -> None:
    """-NAK with a delay, in both spellings; the others proceed meanwhile."""
    p.stream("A", subjects=["a"])
    p.publish("a", "m1", "m2", "m3")
    for name, payload in (("J", '-NAK {"delay": 300000000}'), ("D", "-NAK 300ms"), ("Z", "-NAK {}")):
        p.consumer("A", name)
        p.pull("A", name, expect=1)
        p.ack(len(p.acks) - 1, payload)
        p.pull("A", name, {"batch": 1, "no_wait": True}, expect=1)
        p.pull("A", name, b"2", expect=2)
        p.state("A", name)


def progress(p: Player) -> None:
    """+WPI restarts ack_wait."""
    p.stream("A", subjects=["a"])
    p.publish("a", "m1", "m2")
    p.consumer("A", "C", ack_wait=500 * MS)
    p.pull("A", "C", expect=1)
    p.wait(0.3)
    p.ack(0, "+WPI", reply="ack", expect=1)
    p.wait(0.3)
    p.pull("A", "C", {"no_wait": True}, expect=1)
    p.ack(1, reply="ack", expect=1)
    p.pull("A", "C", expect=1)
    p.state("A", "C")


def strange_acks(p: Player) -> None:
    """Unsolicited acks."""
    p.stream("A", subjects=["a"])
    p.publish("a", "m1", "m2", "m3")
    p.consumer("A", "C")
    p.pull("A", "C", expect=1)
    genuine = p.acks[0]
    tokens = genuine.split(".")
    for strange in (
        "$JS.ACK.A.NOPE.1.1.1." + ".".join(tokens[7:]),
        "$JS.ACK.A.C.1.1.1",
        "$JS.ACK._.HASH.A.C.1.1.1." + ".".join(tokens[7:]) + ".rnd",
        "$JS.ACK.A.C.1.999.1." + ".".join(tokens[7:]),
    ):
        p.request(strange, b"+ACK")
        p.log[-2:] = [text.replace(tokens[7], "T") for text in p.log[-2:]]
        p.state("A", "C")
    p.request(genuine, b"+ACK", [("X", "1")])
    p.log[-2] = p.log[-2].replace(tokens[7], "T")
    p.state("A", "C")


def ack_policies(p: Player) -> None:
    """none, all and explicit: floors and pending."""
    p.stream("A", subjects=["a"])
    p.publish("a", *(f"m{n}" for n in range(1, 9)))
    p.consumer("A", "ALL", ack_policy="all")
    p.pull("A", "ALL", b"6", expect=6)
    p.state("A", "ALL")
    for index in (3, 1, 5):
        p.ack(index, reply="ack", expect=1)
        p.state("A", "ALL")
    p.acks.clear()
    p.consumer("A", "EACH")
    p.pull("A", "EACH", b"6", expect=6)
    for index in (2, 0, 1, 5, 3, 4):
        p.ack(index, reply="ack", expect=1)
        p.state("A", "EACH")
    p.acks.clear()
    p.consumer("A", "NONE", ack_policy="none")
    p.pull("A", "NONE", b"2", expect=2)
    p.state("A", "NONE")
    p.ack(0, reply="ack", expect=1)


def redelivered_ack(p: Player) -> None:
    """The first delivery's subject still acknowledges after a redelivery."""
    p.stream("A", subjects=["a"])
    p.publish("a", "m1", "m2", "m3", "m4", "m5")
    p.consumer("A", "C", ack_wait=300 * MS)
    p.pull("A", "C", expect=1)
    p.pull("A", "C", expect=1)
    p.wait(0.4)
    p.pull("A", "C", expect=1)
    p.state("A", "C")
    p.ack(0, reply="ack", expect=1)
    p.state("A", "C")
    p.consumer("A", "N")
    p.pull("A", "N", b"3", expect=3)
    first = len(p.acks) - 3
    p.ack(first + 1, "-NAK")
    p.state("A", "N")
    p.pull("A", "N", b"2", expect=2)
    p.state("A", "N")
    p.ack(first, reply="ack", expect=1)
    p.ack(first + 2, reply="ack", expect=1)
    p.state("A", "N")
    p.ack(first + 3, reply="ack", expect=1)
    p.state("A", "N")


def max_deliver(p: Player) -> None:
    """After max_deliver a message is never delivered again."""
    p.stream("R", subjects=["r"])
    p.subscribe("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>", 9)
    p.publish("r", "1", "2")
    p.consumer("R", "TWICE", max_deliver=2, ack_wait=300 * MS)
    p.pull("R", "TWICE", {"batch": 6, "expires": 1300 * MS}, expect=5)
    p.events()
    p.state("R", "TWICE")
    p.publish("r", "3")
    p.pull("R", "TWICE", b"1", expect=1)
    p.ack(len(p.acks) - 1, reply="ack", expect=1)
    p.state("R", "TWICE")
    p.consumer("R", "ONCE", max_deliver=1, ack_wait=300 * MS)
    p.pull("R", "ONCE", {"batch": 5, "expires": 800 * MS}, expect=4)
    p.events()
    p.state("R", "ONCE")


def backoff(p: Player) -> None:
    """Backoff replaces ack_wait."""
    p.stream("R", subjects=["r"])
    p.publish("r", "1")
    p.consumer("R", "B", backoff=[200 * MS, 500 * MS], max_deliver=5)
    p.pull_quietly("R", "B", {"batch": 4, "expires": 3 * S})
    p.expect(4, within=3)
    p.state("R", "B")


SCENARIOS: list[Scenario] = [
    walk_through,
    ack_payloads,
    next_payloads,
    nak_delays,
    progress,
    strange_acks,
    ack_policies,
    redelivered_ack,
    max_deliver,
    backoff,
]
