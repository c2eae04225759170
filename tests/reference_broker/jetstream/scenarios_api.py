"""Scenarios about the API, publishing and streams, played on real servers and on the reference."""

from __future__ import annotations

from typing import Any

from tests.reference_broker.jetstream.player import Player, Scenario

MS = 1_000_000
S = 1_000_000_000


def errors(p: Player) -> None:
    """What the API refuses, and with which words."""
    p.stream("S", subjects=["s.>", "t"])
    refused: dict[str, dict[str, Any]] = {
        "S": {"max_msgs": 5}, "T1": {"subjects": ["s.x"]}, "T2": {"subjects": ["a.b", "a.b"]},
        "T3": {"subjects": ["a.b", "a.*"]},
        "T4": {"num_replicas": 3}, "T5": {"num_replicas": 6},
        "T6": {"max_age": S, "duplicate_window": 2 * S}, "T7": {"max_age": MS},
        "T8": {"duplicate_window": MS}, "T9": {"discard_new_per_subject": True}, "T10": {"sealed": True},
        "T11": {"discard": "new", "discard_new_per_subject": True}, "T12": {"description": "x" * 4097},
        "T13": {"max_msgs": "x"},
        "T14": {"retention": "zzz"}, "T15": {"subjects": ["$JS.API.>"]}, "T16": {"max_age": 5 * S},
        "T17": {"subjects": ["x..y"]},
        "T18": {"deny_purge": True, "allow_rollup_hdrs": True}, "a*": {}, "a/b": {}, "n" * 256: {},
    }  # fmt: skip
    for name, config in refused.items():
        p.stream(name, **config)
    p.api("STREAM.CREATE.X", {"name": "Y"})
    p.api("STREAM.CREATE.X", b"{bad")
    p.api("STREAM.CREATE.X", b"")
    p.api("STREAM.UPDATE.NOPE", {"name": "NOPE"})
    p.api("STREAM.UPDATE.S", {"name": "X"})
    for change in ({"storage": "file"}, {"retention": "workqueue"}, {"max_consumers": 4}, {"max_msgs": 10}):
        p.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>", "t"], "storage": "memory", **change})
    for verb, body in [
        ("STREAM.INFO.NOPE", b""), ("STREAM.DELETE.NOPE", b""), ("STREAM.DELETE.S", b"x"),
        ("STREAM.PURGE.NOPE", b""),
        ("STREAM.PURGE.S", b'{"seq":1,"keep":1}'), ("STREAM.MSG.GET.S", b""), ("STREAM.MSG.GET.S", b"{}"),
        ("STREAM.MSG.GET.S", b'{"seq":1,"last_by_subj":"t"}'), ("STREAM.MSG.GET.S", b'{"seq":9}'),
        ("STREAM.MSG.GET.NOPE", b'{"seq":1}'),
        ("STREAM.MSG.DELETE.S", b""), ("STREAM.MSG.DELETE.S", b'{"seq":77}'),
        ("CONSUMER.INFO.S.NOPE", b""), ("CONSUMER.INFO.NOPE.X", b""),
        ("CONSUMER.DELETE.S.NOPE", b""), ("CONSUMER.NAMES.NOPE", b""), ("CONSUMER.LIST.NOPE", b""),
        ("BOGUS.X", b""),
        ("STREAM.NAMES", b""), ("STREAM.NAMES", b'{"offset":99}'), ("STREAM.NAMES", b'{"subject":"t"}'),
        ("STREAM.LIST", b""),
        ("STREAM.DELETE.S", b"{}"), ("STREAM.LIST", b""),
    ]:  # fmt: skip
        p.api(verb, body)


def consumer_errors(p: Player) -> None:
    """What a consumer may not be."""
    p.stream("S", subjects=["s.>", "t"])
    p.consumer("S", "D1")
    changes: list[dict[str, Any]] = [
        {}, {"ack_wait": 5 * S}, {"deliver_policy": "last"}, {"ack_policy": "all"},
        {"replay_policy": "original"},
        {"deliver_subject": "x.y"}, {"max_waiting": 5}, {"filter_subject": "t"}, {"max_deliver": 7},
    ]  # fmt: skip
    for change in changes:
        p.consumer("S", "D1", **change)
    variants: list[dict[str, Any]] = [
        {"deliver_policy": "by_start_sequence"}, {"deliver_policy": "by_start_time"}, {"opt_start_seq": 1},
        {"deliver_policy": "last", "opt_start_seq": 1},
        {"deliver_policy": "new", "opt_start_time": "2020-01-01T00:00:00Z"},
        {"deliver_policy": "last_per_subject"}, {"rate_limit_bps": 1}, {"idle_heartbeat": S},
        {"flow_control": True},
        {"deliver_subject": "d", "max_waiting": 1}, {"deliver_subject": "d.*"}, {"deliver_subject": "s.x"},
        {"deliver_subject": "d", "idle_heartbeat": 1}, {"deliver_subject": "d", "flow_control": True},
        {"backoff": [1, 2, 3], "max_deliver": 2}, {"backoff": [S, 2 * S]},
        {"ack_policy": "none", "max_ack_pending": 5}, {"max_waiting": -1},
        {"sample_freq": "abc"}, {"sample_freq": "150"}, {"max_deliver": 0}, {"max_deliver": -5},
        {"ack_wait": -5}, {"ack_policy": "zz"},
        {"deliver_policy": "zz"}, {"max_batch": -1}, {"max_expires": 1}, {"description": "x" * 4097},
        {"ack_policy": "none"},
        {"ack_policy": "all"}, {"replay_policy": "original"}, {"deliver_group": "g"}, {"num_replicas": 3},
        {"headers_only": True},
        {"filter_subject": "zz"}, {"filter_subject": "t", "filter_subjects": ["s.a"]},
        {"filter_subjects": ["s.>", "s.a"]},
        {"filter_subjects": [""]}, {"filter_subjects": ["s.a", "t"]}, {"priority_groups": ["x"]},
        {"inactive_threshold": S},
    ]  # fmt: skip
    for number, config in enumerate(variants):
        p.consumer("S", f"V{number}", **config)
    explicit = {"ack_policy": "explicit"}
    for verb, body in [
        ("DURABLE.CREATE.S.D2", {"stream_name": "S", "config": {"durable_name": "D1", **explicit}}),
        ("DURABLE.CREATE.S.D2", {"stream_name": "ZZ", "config": {"durable_name": "D2", **explicit}}),
        ("DURABLE.CREATE.S.D2", {"stream_name": "S", "config": explicit}),
        ("DURABLE.CREATE.NOPE.D", {"stream_name": "NOPE", "config": {"durable_name": "D", **explicit}}),
        ("DURABLE.CREATE.S.a*", {"stream_name": "S", "config": {"durable_name": "a*", **explicit}}),
        ("DURABLE.CREATE.S.a/b", {"stream_name": "S", "config": {"durable_name": "a/b", **explicit}}),
        (
            "DURABLE.CREATE.S." + "n" * 256,
            {"stream_name": "S", "config": {"durable_name": "n" * 256, **explicit}},
        ),
        ("CREATE.S", {"stream_name": "S", "config": {"durable_name": "D3", **explicit}}),
        ("CREATE.S.N1", {"stream_name": "S", "config": {"name": "N1", **explicit}}),
        (
            "CREATE.S.N2.s.foo",
            {
                "stream_name": "S",
                "config": {"name": "N2", "durable_name": "N2", "filter_subject": "s.foo", **explicit},
            },
        ),
        (
            "CREATE.S.N3.s.foo",
            {"stream_name": "S", "config": {"name": "N3", "filter_subject": "s.bar", **explicit}},
        ),
        ("CREATE.S.N4", {"stream_name": "S", "config": {"name": "N4", "durable_name": "ZZ", **explicit}}),
        (
            "CREATE.S.N1",
            {"stream_name": "S", "action": "create", "config": {"name": "N1", "ack_policy": "none"}},
        ),
        (
            "CREATE.S.N77",
            {"stream_name": "S", "action": "update", "config": {"name": "N77", "ack_policy": "none"}},
        ),
    ]:
        p.api(f"CONSUMER.{verb}", body)
    p.api("CONSUMER.DURABLE.CREATE.S.D9", b"{x")
    p.api("CONSUMER.DURABLE.CREATE.S.D9", b"")
    p.api("CONSUMER.NAMES.S")
    p.api("CONSUMER.DELETE.S.D1")
    p.api("CONSUMER.DELETE.S.D1")
    p.stream("MC", subjects=["mc"], max_consumers=1)
    p.consumer("MC", "A")
    p.consumer("MC", "B")


def publishing(p: Player) -> None:
    """PubAck, duplicates, expectations, roll-ups."""
    p.stream("O", subjects=["o.>"], allow_rollup_hdrs=True)
    p.publish("o.a", "1", headers=[("Nats-Msg-Id", "x")])
    p.publish("o.b", "1", headers=[("Nats-Msg-Id", "x")])
    p.publish("o.a", "2", headers=[("Nats-Msg-Id", "")])
    p.publish("o.a", "3", headers=[("nats-msg-id", "x")])
    for name, value in [
        ("Nats-Expected-Stream", "P"), ("Nats-Expected-Stream", "O"), ("Nats-Expected-Last-Sequence", "1"),
        ("Nats-Expected-Last-Sequence", "0"), ("Nats-Expected-Last-Sequence", "4"),
        ("Nats-Expected-Last-Subject-Sequence", "3"),
        ("Nats-Expected-Last-Subject-Sequence", "5"), ("Nats-Expected-Last-Msg-Id", "x"),
        ("Nats-Rollup", "zz"), ("Nats-Rollup", "sub"),
        ("Nats-Rollup", "all"), ("Nats-TTL", "1s"),
    ]:  # fmt: skip
        p.publish("o.a", "p", headers=[(name, value)])
        p.stream_state("O")
    p.publish("o.a", "p", headers=[("Nats-Msg-Id", "y")])
    p.publish("o.a", "p", headers=[("Nats-Expected-Last-Msg-Id", "y")])
    p.publish("o.a", "p", headers=[("Nats-Msg-Id", "y"), ("Nats-Expected-Last-Sequence", "1")])
    p.publish("nostream", "x")
    p.publish("o.a", "p", headers=[("X", "y" * 66000)])
    p.stream("NR", subjects=["nr"])
    p.publish("nr", "p", headers=[("Nats-Rollup", "sub")])
    p.stream("NOACK", subjects=["na"], no_ack=True)
    p.publish("na", "p")
    p.stream_state("NOACK")


def limits(p: Player) -> None:
    """Limits and discard policies."""
    limited: dict[str, dict[str, Any]] = {
        "A": {"max_msgs": 3}, "B": {"max_msgs": 3, "discard": "new"}, "C": {"max_bytes": 100},
        "D": {"max_bytes": 100, "discard": "new"},
        "E": {"max_msgs_per_subject": 2},
        "F": {"max_msgs_per_subject": 1, "discard": "new", "discard_new_per_subject": True},
        "G": {"max_msg_size": 10}, "H": {"max_bytes": 100, "storage": "file"},
        "I": {"max_msgs_per_subject": 1, "discard": "new"},
    }  # fmt: skip
    for name, config in limited.items():
        p.stream(name, subjects=[f"{name}.*"], **config)
        p.consumer(name, "c")
        for n in range(5):
            p.publish(f"{name}.{'xy'[n % 2]}", f"payload{n}")
        p.publish(f"{name}.z", "p" * 120)
        p.stream_state(name)
        p.state(name, "c")
    p.api("STREAM.UPDATE.A", {"name": "A", "subjects": ["A.*"], "storage": "memory", "max_msgs": 2})
    p.stream_state("A")
    p.stream("AGE", subjects=["age"], max_age=300 * MS)
    p.consumer("AGE", "c")
    p.publish("age", "1", "2")
    p.wait(0.6)
    p.stream_state("AGE")
    p.state("AGE", "c")


def retention(p: Player) -> None:
    """Work queues and interest."""
    p.stream("W", subjects=["w.*"], retention="workqueue")
    p.publish("w.a", "1", "2")
    p.publish("w.b", "3", "4")
    for config in ({"ack_policy": "none"}, {"ack_policy": "all"}, {"deliver_policy": "new"}):
        p.consumer("W", "X", **config)
    p.consumer("W", "X")
    p.consumer("W", "Y")
    p.consumer("W", "Y", filter_subject="w.a")
    p.pull("W", "X", b"2", expect=2)
    p.stream_state("W")
    p.ack(0, reply="ack", expect=1)
    p.stream_state("W")
    p.ack(1, "+TERM", reply="ack", expect=1)
    p.stream_state("W")
    p.api("CONSUMER.DELETE.W.X")
    p.consumer("W", "A", filter_subject="w.a")
    p.consumer("W", "B", filter_subject="w.b")
    p.consumer("W", "C", filter_subject="w.*")
    p.consumer("W", "C", filter_subject="w.b")
    p.pull("W", "B", expect=1)
    p.ack(2, reply="ack", expect=1)
    p.stream_state("W")
    p.stream("I", subjects=["i.*"], retention="interest")
    p.publish("i.a", "1")
    p.stream_state("I")
    p.consumer("I", "A")
    p.consumer("I", "B")
    p.consumer("I", "F", filter_subject="i.z")
    p.publish("i.a", "2", "3")
    p.publish("i.z", "4")
    p.stream_state("I")
    p.pull("I", "A", b"3", expect=3)
    for index in (3, 4, 5):
        p.ack(index, reply="ack", expect=1)
    p.stream_state("I")
    p.pull("I", "B", b"3", expect=3)
    for index in (6, 7, 8):
        p.ack(index, reply="ack", expect=1)
    p.stream_state("I")
    p.api("CONSUMER.DELETE.I.F")
    p.stream_state("I")
    p.stream("J", subjects=["j"], retention="interest")
    p.consumer("J", "N", ack_policy="none")
    p.publish("j", "1")
    p.pull("J", "N", expect=1)
    p.wait(0.1)
    p.stream_state("J")


def messages(p: Player) -> None:
    """Stored messages by the API."""
    p.stream("P", subjects=["p.*"], allow_direct=True)
    p.publish("p.a", "one", headers=[("K", "v")])
    p.publish("p.b", "two")
    p.publish("p.a", "three")
    for body in (
        {"seq": 1},
        {"last_by_subj": "p.a"},
        {"next_by_subj": "p.b"},
        {"seq": 2, "next_by_subj": "p.a"},
    ):
        answer = p.api("STREAM.MSG.GET.P", body)
        p.log[-1] = p.log[-1].replace(answer["message"]["time"], "T")
    p.api("STREAM.MSG.DELETE.P", {"seq": 2})
    p.stream_state("P")
    for detail in ({"deleted_details": True}, {"subjects_filter": ">"}, {"subjects_filter": "p.a"}):
        p.api("STREAM.INFO.P", detail)
    p.api("STREAM.PURGE.P", {"keep": 1})
    p.stream_state("P")
    for raw in (b"", b"{}", b"{bad", b'{"seq":99}', b'{"seq":1,"last_by_subj":"p.a"}'):
        p.request("$JS.API.DIRECT.GET.P", raw)
    p.request("$JS.API.DIRECT.GET.P.p.zz")
    p.stream("Q", subjects=["q"])
    p.request("$JS.API.DIRECT.GET.Q", b'{"seq":1}')


def advisories(p: Player) -> None:
    """Events about assets and acknowledgements."""
    p.subscribe("$JS.EVENT.>", 9)
    p.flush()
    p.stream("V", subjects=["v"])
    p.consumer("V", "C", sample_freq="100", ack_wait=300 * MS, max_deliver=2)
    p.publish("v", "1", "2", "3")
    p.events()
    p.pull("V", "C", b"3", expect=3)
    for number, payload in ((0, "-NAK"), (1, "+TERM"), (2, "+ACK")):
        p.ack(number, payload, reply="ack", expect=1)
    p.events()
    p.api("CONSUMER.DELETE.V.C")
    p.api("STREAM.DELETE.V")
    p.events()


def advisories_of_consumers(p: Player) -> None:
    """Reasons, samples by policy, pauses and pins; older servers know nothing of the last two."""
    p.subscribe("$JS.EVENT.>", 9)
    p.flush()
    p.stream("V", subjects=["v"])
    p.consumer("V", "C", sample_freq="100%")
    p.consumer("V", "ALL", sample_freq="100", ack_policy="all")
    p.publish("v", "1", "2", "3")
    p.events()
    p.pull("V", "C", b"3", expect=3)
    p.ack(0, "+TERM not a number")
    p.ack(0, "+TERM")
    p.ack(1, "-NAK")
    p.events()
    p.api("STREAM.MSG.DELETE.V", {"seq": 3})
    p.events()
    p.pull("V", "ALL", b"1", expect=1)
    p.ack(3, reply="ack", expect=1)
    p.events()
    p.api("CONSUMER.PAUSE.V.C", {"pause_until": "2099-01-01T00:00:00Z"})
    p.api("CONSUMER.PAUSE.V.C")
    p.events()
    p.consumer("V", "PIN", priority_policy="pinned_client", priority_groups=["g"], priority_timeout=S)
    p.pull("V", "PIN", {"batch": 1, "group": "g"}, expect=1)
    p.events()
    p.api("CONSUMER.UNPIN.V.PIN", {"group": "g"})
    p.events()
    p.api("STREAM.DELETE.V")
    p.events()


SCENARIOS: list[Scenario] = [
    errors,
    consumer_errors,
    publishing,
    limits,
    retention,
    messages,
    advisories,
    advisories_of_consumers,
]
