"""SUB, UNSUB, PUB, HPUB and no-responders, on the pure core."""

from __future__ import annotations

import pytest

from tests.reference_broker.virtual import CLOSED, Virtual

LEVELS = ["2.9", "2.15"]


def test_a_message_reaches_every_subscription_that_matches_once() -> None:
    client = Virtual().client()
    client.send("SUB foo.* 1\nSUB foo.> 2\nSUB > 3\nSUB * 4\nSUB foo.bar 5")
    assert sorted(client.ask("PUB foo.bar 1\nx")) == [f"MSG foo.bar {sid} 1 | x" for sid in (1, 2, 3, 5)]


def test_a_message_goes_to_other_connections_too() -> None:
    virtual = Virtual()
    one, other = virtual.client(), virtual.client()
    other.send("SUB a 7")
    assert one.ask("PUB a reply.to 2\nhi") == []
    assert other.take() == ["MSG a 7 reply.to 2 | hi"]


def test_payloads_are_opaque() -> None:
    client = Virtual().client().send("SUB a 1")
    client.send(b"PUB a 8\r\n\x00\xff\r\n\r\nAB\r\n")
    assert client.take_bytes() == b"MSG a 1 8\r\n\x00\xff\r\n\r\nAB\r\n"


@pytest.mark.parametrize(
    "line",
    [b"PUB a 2\r\n", b"pub a 2\r\n", b"PUB\ta \t 2\r\n", b"PUB  a 2\n", b"PUB a 2  \r\n"],
)
def test_however_a_line_is_spaced_the_message_is_spelled_one_way(line: bytes) -> None:
    client = Virtual().client().send("SUB a 1")
    client.send(line + b"hi\r\n")
    assert client.take_bytes() == b"MSG a 1 2\r\nhi\r\n"


def test_sizes_are_relayed_as_they_were_written() -> None:
    client = Virtual().client().send("SUB a 1")
    client.send(b"PUB a 002\r\nhi\r\nHPUB a 012 0014\r\nNATS/1.0\r\n\r\nhi\r\n")
    assert client.take_bytes() == b"MSG a 1 002\r\nhi\r\nHMSG a 1 012 0014\r\nNATS/1.0\r\n\r\nhi\r\n"


@pytest.mark.parametrize("cut", range(1, 40))
def test_segments_do_not_matter(cut: int) -> None:
    client = Virtual().client()
    data = b"SUB ch 1\r\nPUB ch 5\r\nhello\r\nPING\r\nPUB ch 0\r\n\r\n"
    client.send(data[:cut])
    client.send(data[cut:])
    assert client.take() == ["MSG ch 1 5 | hello", "PONG", "MSG ch 1 0"]


def test_headers_are_relayed_byte_for_byte() -> None:
    virtual = Virtual()
    with_headers, without = virtual.client(), virtual.client(headers=False, no_responders=False)
    with_headers.send("SUB h 1")
    without.send("SUB h 5")
    block = b"NATS/1.0\r\nA: 1\r\na: 2\r\nA:3\r\nB:  sp \r\n\r\n"
    with_headers.send(b"HPUB h rep 38 40\r\n" + block + b"hi\r\n")
    assert with_headers.take_bytes() == b"HMSG h 1 rep 38 40\r\n" + block + b"hi\r\n"
    assert without.take_bytes() == b"MSG h 5 rep 2\r\nhi\r\n"


def test_a_header_block_of_nothing_is_no_header() -> None:
    client = Virtual().client().send("SUB h 1")
    assert client.ask("HPUB h 0 2\nhi") == ["MSG h 1 2 | hi"]


def test_headers_need_both_sides() -> None:
    assert Virtual().client(headers=False, no_responders=False).ask(
        b"HPUB a 12 12\r\nNATS/1.0\r\n\r\n\r\n"
    ) == [CLOSED]
    server_without = Virtual(no_header_support=True)
    client = server_without.client(no_responders=False)
    assert client.ask(b"HPUB a 12 12\r\nNATS/1.0\r\n\r\n\r\n") == [CLOSED]


def test_echo_false_suppresses_only_own_messages() -> None:
    virtual = Virtual()
    mute, other = virtual.client(echo=False).send("SUB a 1"), virtual.client().send("SUB a 2")
    assert mute.ask("PUB a 1\nx") == []
    assert other.take() == ["MSG a 2 1 | x"]
    other.send("PUB a 1\ny")
    assert mute.take() == ["MSG a 1 1 | y"]


def test_message_goes_to_one_member_per_queue_group() -> None:
    virtual = Virtual()
    publisher = virtual.client()
    one = virtual.client().send("SUB q g 1\nSUB q h 2")
    other = virtual.client().send("SUB * g 1\nSUB q 3")
    publisher.send(b"PUB q 1\r\nx\r\n" * 40)
    ones, others = one.take(), other.take()
    assert len(ones + others) == 120
    assert ones.count("MSG q 2 1 | x") == 40
    assert others.count("MSG q 3 1 | x") == 40
    assert ones.count("MSG q 1 1 | x") > 0
    assert others.count("MSG q 1 1 | x") > 0


def test_queue_message_goes_to_other_member_if_first_cannot() -> None:
    virtual = Virtual()
    mute = virtual.client(echo=False).send("SUB q g 1")
    other = virtual.client().send("SUB q g 2")
    mute.send(b"PUB q 1\r\nx\r\n" * 20)
    assert mute.take() == []
    assert len(other.take()) == 20


def test_auto_unsubscribe_counts_from_sub_on() -> None:
    client = Virtual().client().send("SUB u 1\nPUB u 1\na\nPUB u 1\nb")
    assert len(client.take()) == 2
    client.send("UNSUB 1 3\nPUB u 1\nc\nPUB u 1\nd")
    assert client.take() == ["MSG u 1 1 | c"]


def test_auto_unsubscribe_that_is_reached_already_ends_at_once() -> None:
    client = Virtual().client().send("SUB u 1\nPUB u 1\na\nPUB u 1\nb\nUNSUB 1 2\nPUB u 1\nc")
    assert client.take() == ["MSG u 1 1 | a", "MSG u 1 1 | b"]


@pytest.mark.parametrize("limit", ["", " 0", " -1"])
def test_unsub_without_a_limit_above_zero_ends_at_once(limit: str) -> None:
    assert Virtual().client().ask(f"SUB u 1\nUNSUB 1{limit}\nPUB u 1\nx") == []


def test_an_ended_sid_can_be_used_again() -> None:
    client = Virtual().client().send("SUB u 1\nUNSUB 1 1\nPUB u 1\na\nSUB v 1\nPUB u 1\nb\nPUB v 1\nc")
    assert client.take() == ["MSG u 1 1 | a", "MSG v 1 1 | c"]


def test_a_live_sid_keeps_its_first_subject() -> None:
    client = Virtual().client(verbose=True).send("SUB d 20\nSUB e 20")
    assert client.take() == ["+OK", "+OK"]
    assert client.ask("PUB d 1\n1\nPUB e 1\n2") == ["+OK", "MSG d 20 1 | 1", "+OK"]


def test_closed_connection_does_not_count_as_responder() -> None:
    virtual = Virtual()
    service, client = virtual.client().send("SUB svc 1"), virtual.client().send("SUB in 1")
    assert client.ask("PUB svc in 0\n") == []
    service.leave()
    assert [line.split()[0] for line in client.ask("PUB svc in 0\n")] == ["HMSG"]


def test_no_responders_at_level_2_9() -> None:
    client = Virtual(level="2.9").client().send("SUB _INBOX.a.> 1")
    client.send("PUB unused.home _INBOX.a.1 1\nx")
    assert client.take_bytes() == b"HMSG _INBOX.a.1 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n"


def test_no_responders_at_newest_level() -> None:
    client = Virtual().client().send("SUB _INBOX.a.> 1")
    client.send("PUB unused.home _INBOX.a.1 1\nx")
    assert client.take_bytes() == (
        b"HMSG _INBOX.a.1 1 43 43\r\nNATS/1.0 503\r\nNats-Subject: unused.home\r\n\r\n\r\n"
    )


def test_no_responders_is_sent_once_and_not_counted_for_max_msgs() -> None:
    client = Virtual(level="2.9").client().send("SUB r 1\nUNSUB 1 1\nSUB r.> 2\nSUB r 3")
    assert client.ask("PUB no r 0\n\nPUB no r 0\n") == ["HMSG r 1 16 16 | NATS/1.0 503\\r\\n\\r\\n"] * 2
    assert "MSG r 1 1 | x" in client.ask("PUB r 1\nx")


@pytest.mark.parametrize(
    ("sent", "options"),
    [
        ("SUB in 1\nPUB no 1\nx", {}),
        ("SUB in 1\nPUB no other 1\nx", {}),
        ("SUB in 1\nPUB no in 1\nx", {"no_responders": False}),
        ("SUB in queue 1\nPUB no in 1\nx", {}),
        ("SUB in 1\nSUB yes 2\nUNSUB 2 9\nPUB yes in 1\nx", {}),
    ],
    ids=["no reply", "reply not subscribed", "not asked for", "only a queue member", "somebody listens"],
)
def test_no_503(sent: str, options: dict[str, bool]) -> None:
    assert not [line for line in Virtual().client(**options).ask(sent) if line.startswith("HMSG")]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("subject", ["foo..bar", "foo.", ".foo", "a.>.b"])
def test_invalid_subjects_are_refused_and_the_connection_stays(level: str, subject: str) -> None:
    client = Virtual(level=level).client()
    assert client.ask(f"SUB {subject} 1\nPING") == ["-ERR 'Invalid Subject'", "PONG"]


def test_wildcards_within_a_token_are_letters() -> None:
    client = Virtual().client().send("SUB foo.b*r 1")
    assert client.ask("PUB foo.b*r 1\nx\nPUB foo.bar 1\ny") == ["MSG foo.b*r 1 1 | x"]


def test_pedantic_complains_of_the_subject_and_delivers_all_the_same() -> None:
    client = Virtual().client(pedantic=True, verbose=True).send("SUB foo.* 1")
    assert client.take() == ["+OK"]
    assert client.ask("PUB foo.* 1\ny") == ["-ERR 'Invalid Publish Subject'", "+OK", "MSG foo.* 1 1 | y"]


def test_without_pedantic_a_bad_subject_goes_nowhere_in_silence() -> None:
    assert Virtual().client().ask("SUB > 1\nPUB a..b 1\nx\nPING") == ["PONG"]


def test_the_servers_own_subjects_are_out_of_bounds() -> None:
    client = Virtual().client()
    assert client.ask("PUB _GR_.x 1\nx") == ["-ERR 'Permissions Violation for Publish to \"_GR_.x\"'"]
    assert client.ask("PUB a $JS.ACK.x 1\nx") == [
        "-ERR 'Permissions Violation for Publish with Reply of \"$JS.ACK.x\"'"
    ]


def test_the_limit_of_subscriptions_refuses_one_more_only() -> None:
    client = Virtual(max_subscriptions=2).client()
    assert client.ask("SUB a 1\nSUB b 2\nSUB c 3\nPING") == ["-ERR 'maximum subscriptions exceeded'", "PONG"]
    assert client.ask("UNSUB 1\nSUB c 3\nPUB c 1\nx") == ["MSG c 3 1 | x"]


@pytest.mark.parametrize(("level", "line"), [("2.9", b"MSG s 1  2\r\n"), ("2.15", b"MSG s 1 2\r\n")])
def test_own_messages_without_reply_have_two_blanks_at_level_2_9(level: str, line: bytes) -> None:
    virtual = Virtual(level=level)
    client = virtual.client().send("SUB s 1")
    assert virtual.broker.publish(b"s", None, b"", b"hi") == 1
    virtual.carry_out(virtual.broker.flush())
    assert client.take_bytes() == line + b"hi\r\n"


def test_a_service_can_deliver_under_another_subject() -> None:
    virtual = Virtual()
    client = virtual.client().send("SUB inbox 1")
    assert virtual.broker.deliver(b"inbox", b"orders", b"ack", b"NATS/1.0\r\n\r\n", b"x") == 1
    assert virtual.broker.deliver(b"unused", b"orders", None, b"", b"x") == 0
    virtual.carry_out(virtual.broker.flush())
    assert client.take_bytes() == b"HMSG orders 1 ack 12 13\r\nNATS/1.0\r\n\r\nx\r\n"


def test_interest_follows_subscriptions() -> None:
    virtual = Virtual()
    client = virtual.client().send("SUB a.* 1\nSUB b queue 2")
    broker = virtual.broker
    assert [broker.has_interest(subject) for subject in (b"a.x", b"b", b"c")] == [True, True, False]
    client.send("UNSUB 1\nUNSUB 2")
    assert [broker.has_interest(subject) for subject in (b"a.x", b"b")] == [False, False]
