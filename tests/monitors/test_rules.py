"""Each rule on a short transcript: what breaks it, and what looks like it and does not."""

from __future__ import annotations

import pickle

import pytest

from plumbline.monitors import MONITORS, MonitorRunner, MonitorScope, Observation, Violation, rising
from plumbline.monitors.nats import publishes
from plumbline.monitors.nats.reader import NatsReader
from plumbline.wire import nats

WHOLE = 'a> CONNECT {"lang":"python3","version":"2.10.0"}\n'
PULL = "$JS.API.CONSUMER.MSG.NEXT.S.C"


def ack(count: int, stream_seq: int, consumer_seq: int) -> str:
    return f"$JS.ACK.S.C.{count}.{stream_seq}.{consumer_seq}.1795264722143197235.0"


def operation(line: str) -> bytes:
    r"""``PUB s r | body`` as bytes, sizes added; ``\r\n`` in the text is a line end."""
    head, bar, body = line.partition(" |")
    if not bar:
        return f"{line}\r\n".encode()
    data = body.removeprefix(" ").replace("\\r\\n", "\r\n").encode()
    sizes = [len(data)]
    if head.split()[0] in ("HPUB", "HMSG"):
        sizes.insert(0, data.index(b"\r\n\r\n") + 4)
    return f"{head} {' '.join(map(str, sizes))}\r\n".encode() + data + b"\r\n"


def observations(transcript: str) -> list[Observation]:
    """Lines such as ``a> PING`` and ``b< PONG``: the connection, then who speaks, then the operation."""
    seen: list[Observation] = []
    for line in filter(None, map(str.strip, transcript.splitlines())):
        connection, arrow, text = line[0], line[1], line[3:]
        sender = nats.Sender.CLIENT if arrow == ">" else nats.Sender.SERVER
        (decoded,) = nats.Decoder(sender).feed(operation(text))
        seen.append(Observation(decoded, sender, connection, len(seen) + 1, len(seen) * 1_000_000))
    return seen


def judged(transcript: str) -> list[Violation]:
    watch = MonitorRunner()
    return [violation for seen in observations(transcript) for violation in watch.observe(seen)]


def rules(transcript: str) -> list[tuple[str, bool]]:
    return [(violation.rule, violation.certain) for violation in judged(transcript)]


def test_unknown_sid_is_violation_only_if_connection_start_was_captured() -> None:
    assert rules(WHOLE + "a> SUB x 1\na< MSG x 2 | m") == [("live-subscription", True)]
    assert rules("a> SUB x 1\na< MSG x 2 | m") == []


def test_messages_in_flight_when_unsub_is_sent_are_no_violation() -> None:
    in_flight = WHOLE + "a> SUB x 1\na> PING\na> UNSUB 1\na< MSG x 1 | m\na< PONG\na< MSG x 1 | m\n"
    assert rules(in_flight) == []
    assert rules(in_flight + "a> PING\na< MSG x 1 | m\na< PONG\na< MSG x 1 | m") == [
        ("live-subscription", True)
    ]


def test_unsub_with_a_maximum_lets_that_many_through() -> None:
    two = WHOLE + "a> SUB x 1\na> UNSUB 1 2\na> PING\na< PONG\na< MSG x 1 | m\na< MSG x 1 | m\n"
    assert rules(two) == []
    (violation,) = judged(two + "a< MSG x 1 | m")
    assert violation.actual == "message 3 after a PONG that came later than UNSUB"
    assert [place.index for place in violation.earlier] == [2, 3]


def test_subject_that_the_subscription_does_not_match() -> None:
    assert rules("a> SUB x.* 1\na< MSG x.y.z 1 | m") == [("subject-matches", True)]
    assert rules(f"a> SUB in 1\na< MSG x.y.z 1 {ack(1, 1, 1)} | m") == []
    # A sid that is used again may still hear what was sent for its first subject.
    assert rules("a> SUB x 1\na> UNSUB 1\na> SUB y 1\na< MSG x 1 | m\na< MSG y 1 | m") == []


def test_more_messages_than_the_batch() -> None:
    two = WHOLE + f'a> SUB in 1\na> PUB {PULL} in | {{"batch":2}}\n'
    two += f"a< MSG x 1 {ack(1, 1, 1)} | m\na< MSG x 1 {ack(1, 2, 2)} | m\n"
    assert rules(two) == []
    assert rules(two + f"a< MSG x 1 {ack(1, 3, 3)} | m") == [("batch-is-the-limit", True)]
    assert rules(two + f"a> PUB {PULL} in | 1\na< MSG x 1 {ack(1, 3, 3)} | m") == []
    # +NXT asks for one more.
    assert rules(two + f"a> PUB {ack(1, 2, 2)} in | +NXT\na< MSG x 1 {ack(1, 3, 3)} | m") == []


def test_message_after_the_status_that_ended_its_request() -> None:
    ended = WHOLE + f'a> SUB in.* 1\na> PUB {PULL} in.1 | {{"batch":5,"expires":1000000000}}\n'
    heartbeat = "a< HMSG in.1 1 | NATS/1.0 100 Idle Heartbeat\\r\\n\\r\\n\n"
    timeout = "a< HMSG in.1 1 | NATS/1.0 408 Request Timeout\\r\\nNats-Pending-Messages: 5\\r\\n\\r\\n\n"
    message = f"a< MSG x 1 {ack(1, 1, 1)} | m"
    assert rules(ended + heartbeat + message) == []
    assert rules(ended + timeout + message) == [("batch-is-the-limit", True)]


def test_status_ends_request_with_matching_pending_count() -> None:
    two = WHOLE + f'a> SUB in 1\na> PUB {PULL} in | {{"batch":5}}\na> PUB {PULL} in | {{"batch":1}}\n'
    first = "a< HMSG in 1 | NATS/1.0 408 Request Timeout\\r\\nNats-Pending-Messages: 5\\r\\n\\r\\n\n"
    messages = f"a< MSG x 1 {ack(1, 1, 1)} | m\na< MSG x 1 {ack(1, 2, 2)} | m"
    assert rules(two + first + messages) == [("batch-is-the-limit", True)]
    untold = "a< HMSG in 1 | NATS/1.0 404 No Messages\\r\\n\\r\\n\n"
    assert rules(two + untold + messages) == []


def test_push_deliveries_need_no_request() -> None:
    assert rules(WHOLE + f"a> SUB in 1\na< MSG x 1 {ack(1, 1, 1)} | m") == []


def test_consumer_sequence_is_given_once() -> None:
    once = f"a> SUB in 1\na< MSG x 1 {ack(1, 1, 1)} | m\na< MSG x 1 {ack(1, 2, 2)} | m\n"
    assert rules(once + f"a< MSG x 1 {ack(1, 3, 2)} | m") == [("consumer-sequence", True)]
    elsewhere = f"b> SUB in 1\nb< MSG x 1 {ack(1, 3, 2)} | m"
    assert rules(once + elsewhere) == [("consumer-sequence", False)]


def test_consumer_that_is_made_anew_counts_from_one() -> None:
    twice = f"a> SUB in 1\na< MSG x 1 {ack(1, 1, 1)} | m\na< MSG x 1 {ack(1, 2, 2)} | m\n"
    assert rules(twice + "b> PUB $JS.API.CONSUMER.DELETE.S.C in |\n" + twice.partition("\n")[2]) == []
    assert rules(twice + twice.partition("\n")[2]) == []


def test_consumer_sequence_gap_is_reported_at_end_of_complete_traffic() -> None:
    watch = MonitorRunner()
    transcript = f"a> SUB in 1\na< MSG x 1 {ack(1, 1, 1)} | m\na< MSG x 1 {ack(1, 5, 5)} | m"
    assert [list(watch.observe(seen)) for seen in observations(transcript)] == [[], [], []]
    (violation,) = watch.finish()
    assert violation.actual == "C never gave consumer sequence 2 to 4"


def test_delivery_count_rises_with_each_redelivery() -> None:
    first = f"a> SUB in 1\na< MSG x 1 {ack(1, 1, 1)} | m\n"
    assert rules(first + f"a< MSG x 1 {ack(2, 1, 2)} | m") == []
    assert rules(first + f"a< MSG x 1 {ack(1, 1, 2)} | m") == [("delivery-count", True)]
    assert rules(first + f"a< MSG x 1 {ack(3, 1, 3)} | m") == [("delivery-count", False)]


@pytest.mark.parametrize("kind", ["+ACK", "+TERM", ""])
def test_confirmed_end_is_the_end(kind: str) -> None:
    asked = f"a> SUB in 1\na> SUB r 2\na< MSG x 1 {ack(1, 1, 1)} | m\na> PUB {ack(1, 1, 1)} r | {kind}\n"
    again = f"a< MSG x 1 {ack(2, 1, 2)} | m"
    assert rules(asked + again) == []  # in flight when the acknowledgement was sent
    (violation,) = judged(asked + "a< MSG r 2 |\n" + again)
    assert violation.rule == "nothing-after-the-end"
    assert "stream sequence 1, count 2" in str(violation)


def test_answered_nak_is_no_end() -> None:
    asked = f"a> SUB r 2\na< MSG x 1 {ack(1, 1, 1)} | m\na> PUB {ack(1, 1, 1)} r | -NAK\na< MSG r 2 |\n"
    assert rules(asked + f"a< MSG x 1 {ack(2, 1, 2)} | m") == []


def test_second_acknowledgement_is_the_clients_fault() -> None:
    acked = f"a< MSG x 1 {ack(1, 1, 1)} | m\na> PUB {ack(1, 1, 1)} | +WPI\na> PUB {ack(1, 1, 1)} | +ACK\n"
    assert rules(acked) == []
    (violation,) = judged(acked + f"a> PUB {ack(1, 1, 1)} | -NAK")
    assert (violation.rule, violation.side) == ("one-acknowledgement", "client")
    assert rules(acked + f"a< MSG x 1 {ack(2, 1, 2)} | m\na> PUB {ack(2, 1, 2)} | +ACK") == []


def test_stream_sequence_is_unique() -> None:
    one = 'a> PUB x r | m\na< MSG r 1 | {"stream":"S","seq":7}\n'
    assert rules(one + 'a> PUB x r | m\na< MSG r 1 | {"stream":"S","seq":7,"duplicate":true}') == []
    assert rules(one + 'a> PUB x r | m\na< MSG r 1 | {"stream":"S","seq":7}') == [("stream-sequence", True)]
    refused = 'a> PUB x r | m\na< MSG r 1 | {"error":{"code":400,"err_code":10071},"stream":"S","seq":0}\n'
    assert rules(one + refused + refused) == []
    assert rules(one + "a> PUB $JS.API.STREAM.DELETE.S in |\n" + one) == []


@pytest.mark.parametrize(
    ("logins", "is_certain"),
    [
        (('{"user":"u","pass":"1"}', '{"user":"u","pass":"1"}'), True),
        (('{"user":"u","pass":"1"}', '{"user":"v","pass":"1"}'), False),
        (("{}", "{}"), True),
        (("{}", '{"user":"u"}'), False),
        (('{"auth_token":"***"}', '{"auth_token":"***"}'), False),
        (('{"jwt":"***","sig":"***"}', '{"jwt":"***","sig":"***"}'), False),
        ((None, None), False),
    ],
)
def test_two_accounts_may_have_streams_and_consumers_of_one_name(
    logins: tuple[str | None, str | None], is_certain: bool
) -> None:
    entry = "".join(
        f"{connection}> CONNECT {login}\n{connection}> SUB > 1\n"
        for connection, login in zip("ab", logins, strict=True)
        if login is not None
    )
    assert rules(entry + _acked("a", 7) + _acked("b", 7)) == [("stream-sequence", is_certain)]
    assert rules(entry + _acked("b", 7) + _acked("a", 5) + _acked("a", 5))[-1] == ("stream-sequence", True)
    ended = f"> PUB {ack(1, 1, 1)} | +ACK\n"
    assert rules(entry + f"a{ended}b{ended}") == [("one-acknowledgement", is_certain)]


def test_a_certificate_may_be_a_login() -> None:
    entry = "".join(
        f'{one}< INFO {{"tls_verify":true}}\n{one}> CONNECT {{}}\n{one}> SUB > 1\n' for one in "ab"
    )
    assert rules(entry + _acked("a", 7) + _acked("b", 7)) == [("stream-sequence", False)]


def test_a_sequence_that_comes_again_long_after_is_of_one_account_or_perhaps_of_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publishes, "MOST_STEPS", 3)
    many = "".join(_acked("a", seq) for seq in range(1, 9))
    assert rules(many + _acked("a", 1)) == [("stream-sequence", True)]
    assert ("stream-sequence", False) in rules(many + _acked("b", 20) + _acked("a", 1))


def _acked(connection: str, seq: int, more: str = "") -> str:
    """A publish and its PubAck."""
    answer = f'{{"stream":"S","seq":{seq}{more}}}'
    return f"{connection}> PUB x r{seq} | m{seq}\n{connection}< MSG r{seq} 1 | {answer}\n"


def test_what_is_sent_after_a_puback_has_a_higher_sequence() -> None:
    assert rules(_acked("a", 7) + _acked("a", 5)) == [("stream-order", True)]
    assert rules(_acked("a", 7) + _acked("b", 5)) == [("stream-order", False)]
    assert rules(_acked("a", 7) + _acked("a", 9) + _acked("a", 8)) == [("stream-order", True)]
    assert rules(_acked("a", 7) + _acked("a", 9)) == []


def test_publishes_that_overlap_may_have_any_order() -> None:
    sent = "a> PUB x r1 | 1\na> PUB x r2 | 2\n"
    assert rules(sent + 'a< MSG r2 1 | {"stream":"S","seq":1}\na< MSG r1 1 | {"stream":"S","seq":2}') == []
    assert rules(sent + 'a< MSG r2 1 | {"stream":"S","seq":2}\na< MSG r1 1 | {"stream":"S","seq":1}') == []


def test_a_duplicate_has_its_old_sequence() -> None:
    assert rules(_acked("a", 7) + _acked("a", 9) + _acked("a", 7, ',"duplicate":true')) == []


def test_a_stream_that_is_made_again_counts_from_1() -> None:
    made = "b> PUB $JS.API.STREAM.CREATE.S in |\n"
    assert rules(_acked("a", 7) + made + _acked("a", 1)) == []
    between = "a> PUB x r | m\n" + made + 'a< MSG r 1 | {"stream":"S","seq":8}\n'
    assert rules(_acked("a", 7) + between + _acked("a", 1)) == []


def test_a_stream_that_is_made_again_on_a_server_with_a_domain() -> None:
    info = 'a< INFO {"domain":"hub"}\n'
    one, two = (_acked("a", seq, ',"domain":"hub"') for seq in (7, 1))
    assert rules(info + one + "a> PUB $JS.API.STREAM.CREATE.S in |\n" + two) == []
    assert rules(info + one + "a> PUB $JS.leaf.API.STREAM.CREATE.S in |\n" + two) == [("stream-order", True)]


def test_few_acknowledgements_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishes, "MOST_STEPS", 5)
    monkeypatch.setattr(rising, "MOST_STEPS", 5)
    monkeypatch.setattr(publishes, "MOST_CHECKSUMS", 5)
    watch = MonitorRunner()
    for seen in observations("".join(_acked("a", seq) for seq in range(1, 101))):
        assert not list(watch.observe(seen))
    states = [monitor.state for monitor in watch.monitors.values()]
    assert (
        max(
            len(state.acknowledged.values)
            for state in states
            if isinstance(state, publishes.StreamOrderState)
        )
        <= 10
    )
    assert max(len(state.known) for state in states if isinstance(state, publishes.StoredPayloadsState)) == 5


def _delivered(connection: str, payload: str, head: str = "MSG") -> str:
    return f"{connection}> SUB x 1\n{connection}< {head} x 1 {ack(1, 7, 1)} | {payload}\n"


def test_a_message_is_delivered_with_its_payload() -> None:
    assert rules(_acked("a", 7) + _delivered("a", "m7")) == []
    assert rules(_acked("a", 7) + _delivered("a", "m8")) == [("one-payload", True)]
    assert rules(_acked("a", 7) + _delivered("b", "m8")) == [("one-payload", False)]
    assert rules(_delivered("a", "m7") + _delivered("b", "m8").replace("S.C.1.7.1", "S.D.1.7.1")) == [
        ("one-payload", False)
    ]


@pytest.mark.parametrize(
    "publish",
    [
        "a> HPUB x r7 | NATS/1.0\\r\\nNats-Incr: 1\\r\\n\\r\\n\n"
        'a< MSG r7 1 | {"stream":"S","seq":7,"val":"3"}\n',
        'a> HPUB x r7 | NATS/1.0\\r\\nNats-Batch-Id: b\\r\\n\\r\\n\na< MSG r7 1 | {"stream":"S","seq":7}\n',
        'a> PUB x r7 | m8\na< MSG r7 1 | {"stream":"S","seq":7,"duplicate":true}\n',
        "a> PUB x r7 | m8\na< MSG r7 1 | {}\n",
    ],
    ids=["counter", "batch", "duplicate", "service"],
)
def test_what_stores_another_payload_is_no_violation(publish: str) -> None:
    assert rules(publish + _delivered("a", "m7")) == []


def test_headers_only_leave_the_payload_out() -> None:
    without = _delivered("a", "NATS/1.0\\r\\nNats-Msg-Size: 2\\r\\n\\r\\n", "HMSG")
    assert rules(_acked("a", 7) + without) == []


SENT_ID = "HPUB x r | NATS/1.0\\r\\nNats-Msg-Id: k\\r\\n\\r\\nm\n"


def _with_id(connection: str, seq: int, more: str = "") -> str:
    answer = f'{connection}< MSG r 1 | {{"stream":"S","seq":{seq}{more}}}\n'
    return f"{connection}> {SENT_ID}{answer}"


def _window(milliseconds: int) -> str:
    config = f'"config":{{"name":"S","duplicate_window":{milliseconds * 1_000_000}}}'
    state = '"state":{"messages":0,"bytes":0,"first_seq":0,"last_seq":0,"consumer_count":0}'
    return f"a> PUB $JS.API.STREAM.INFO.S i |\na< MSG i 1 | {{{config},{state}}}\n"


def test_a_message_id_is_stored_once() -> None:
    assert rules(_with_id("a", 7) + _with_id("a", 8)) == [("message-id", True)]
    assert rules(_with_id("a", 7) + _with_id("b", 8)) == [("message-id", False)]
    assert rules(_with_id("a", 7) + _with_id("a", 7, ',"duplicate":true') + _acked("a", 8)) == []
    assert rules(_with_id("a", 7) + _with_id("a", 8).replace("Nats-Msg-Id: k", "Nats-Msg-Id: l")) == []
    assert rules(_with_id("a", 7) + "b> PUB $JS.API.STREAM.PURGE.S in |\n" + _with_id("a", 8)) == []


def test_a_message_id_is_new_after_the_duplicate_window() -> None:
    later = "a> PING\na< PONG\n" * 60  # 120 ms
    twice = _with_id("a", 7) + later + _with_id("a", 8)
    assert rules(twice) == [("message-id", False)]  # the window is not known
    assert rules(_window(110) + twice) == []
    assert rules(_window(1000) + twice) == [("message-id", True)]


def _floor(connection: str, floor: int, created: str = "t1", leader: str = "") -> str:
    pair = f'{{"consumer_seq":{floor},"stream_seq":{floor}}}'
    counts = '"num_ack_pending":0,"num_redelivered":0,"num_waiting":0,"num_pending":0'
    cluster = f',"cluster":{{"leader":"{leader}"}}' if leader else ""
    info = (
        f'{{"stream_name":"S","name":"C","created":"{created}","delivered":{pair},"ack_floor":{pair},{counts}'
        f"{cluster}}}"
    )
    return f"{connection}> PUB $JS.API.CONSUMER.INFO.S.C i |\n{connection}< MSG i 1 | {info}\n"


def test_an_ack_floor_never_decreases() -> None:
    assert rules(_floor("a", 7) + _floor("a", 5)) == [("ack-floor", True)]
    assert rules(_floor("a", 7) + _floor("b", 5)) == [("ack-floor", False)]
    assert rules(_floor("a", 7) + _floor("a", 9) + _floor("a", 8)) == [("ack-floor", True)]
    assert rules(_floor("a", 7) + _floor("a", 7) + _floor("a", 9)) == []


def test_floors_of_two_leaders_or_two_consumers_are_not_compared() -> None:
    assert rules(_floor("a", 7, leader="n1") + _floor("a", 5, leader="n2")) == []
    assert rules(_floor("a", 7, leader="n1") + _floor("a", 5, leader="n1")) == [("ack-floor", True)]
    assert rules(_floor("a", 7) + _floor("a", 5, created="t2")) == []


def test_a_reset_may_lower_an_ack_floor() -> None:
    assert rules(_floor("a", 7) + "b> PUB $JS.API.CONSUMER.RESET.S.C in |\n" + _floor("a", 5)) == []
    other = "b> PUB $JS.API.CONSUMER.RESET.S.D in |\n"
    assert rules(_floor("a", 7) + other + _floor("a", 9) + _floor("a", 5)) == [("ack-floor", True)]


def test_answers_that_overlap_may_have_any_floors() -> None:
    first, second = (_floor("a", floor).replace(" i ", f" i{floor} ").splitlines() for floor in (5, 7))
    assert rules("\n".join([first[0], *second, first[1]])) == []


READ = "a> PUB $JS.API.STREAM.MSG.GET.S i |\n"
DIRECT = "NATS/1.0\\r\\nNats-Stream: S\\r\\nNats-Sequence: 7\\r\\n\\r\\n"


def test_a_message_is_read_with_its_payload() -> None:
    def read(data: str) -> str:
        return READ + f'a< MSG i 1 | {{"message":{{"subject":"x","seq":7,"data":"{data}"}}}}\n'

    assert rules(_acked("a", 7) + read("bTc=")) == []
    assert rules(_acked("a", 7) + read("bTg=")) == [("one-payload", True)]
    assert rules(_acked("a", 7) + read("not base64")) == []


def test_a_message_is_read_directly_with_its_payload() -> None:
    asked = "a> PUB $JS.API.DIRECT.GET.S i |\n"
    assert rules(_acked("a", 7) + f"{asked}a< HMSG i 1 | {DIRECT}m7") == []
    assert rules(_acked("a", 7) + f"{asked}a< HMSG i 1 | {DIRECT}m8") == [("one-payload", True)]
    assert rules(_acked("a", 7) + f"a> SUB i 1\na< HMSG i 1 | {DIRECT}m8") == []  # republished, perhaps


def test_unreadable_operations_give_no_facts() -> None:
    hostile = f"a> PUB {PULL} in | {{\na> PUB $JS.ACK.x in | +ACK\na> PUB $JS.API in |\n"
    assert rules(hostile + "a< HMSG in 1 | NATS/1.0 9\\r\\n\\r\\n\na< MSG r 1 $JS.ACK.a.b |") == []


def test_rule_of_a_closed_connection_is_forgotten() -> None:
    watch = MonitorRunner()
    for seen in observations(WHOLE + "a> SUB x 1"):
        assert not list(watch.observe(seen))
    watch.close("a")
    assert not [kind for kind, _ in watch.monitors if kind.scope is MonitorScope.CONNECTION]
    assert not watch.readers


@pytest.mark.parametrize("cut", range(1, 12))
def test_state_can_be_put_aside_and_taken_up_anywhere(cut: int) -> None:
    transcript = observations(
        WHOLE + f"a> SUB in 1\na> SUB r 2\na> PUB {PULL} in | 2\na< MSG x 1 {ack(1, 1, 1)} | m\n"
        f"a> PUB {ack(1, 1, 1)} r | +ACK\na< MSG r 2 |\na> UNSUB 2\na> PING\na< PONG\n"
        f"a< MSG x 1 {ack(2, 1, 2)} | m\na< MSG x 1 {ack(2, 1, 2)} | m\na< MSG r 2 | m"
    )
    whole = MonitorRunner()
    expected = [violation for seen in transcript for violation in whole.observe(seen)]
    assert {violation.rule for violation in expected} >= {"nothing-after-the-end", "consumer-sequence"}
    first, second = MonitorRunner(), MonitorRunner()
    before = [violation for seen in transcript[:cut] for violation in first.observe(seen)]
    second.readers = pickle.loads(pickle.dumps(first.readers))
    second.monitors = pickle.loads(pickle.dumps(first.monitors))
    after = [violation for seen in transcript[cut:] for violation in second.observe(seen)]
    assert before + after == expected


def test_other_facts_than_it_looks_at_change_nothing_for_a_monitor() -> None:
    transcript = observations(
        'a< INFO {"domain":"d"}\n'
        + WHOLE
        + f"a> SUB in 1\na> SUB r 2\na> PUB {PULL} in | 2\na> PING\na< PONG\n"
        f"a< MSG x 1 {ack(1, 1, 1)} | m\na> PUB {ack(1, 1, 1)} r | +ACK\na< MSG r 2 |\n"
        + _acked("a", 7)
        + "a> PUB $JS.API.STREAM.PURGE.S r |\na> UNSUB 2\n"
        "a< HMSG in 1 | NATS/1.0 408 Request Timeout\\r\\n\\r\\n\n"
        + _window(1000)
        + _floor("a", 7)
        + f"{READ}a< HMSG i 1 | {DIRECT}m".replace("STREAM.MSG.GET", "DIRECT.GET")
    )
    reader = NatsReader()
    facts = [fact for seen in transcript for fact in reader.read(seen)]
    ours = [kind for kind in MONITORS if kind.scope in (MonitorScope.CONNECTION, MonitorScope.STREAM)]
    assert {type(fact) for fact in facts} >= {kind for one in ours for kind in one.looks_at}
    for kind in ours:
        whole, wanted = kind(), kind()
        found = [violation for fact in facts for violation in whole.observe(fact)]
        of_wanted = [
            violation for fact in facts if kind.wants(type(fact)) for violation in wanted.observe(fact)
        ]
        assert [*found, *whole.finish()] == [*of_wanted, *wanted.finish()]


def test_every_monitor_has_rule_title_and_source() -> None:
    names = [monitor.rule for monitor in MONITORS]
    assert len(names) == len(set(names))
    assert all(
        monitor.title.endswith(".") and monitor.source and monitor.requirements for monitor in MONITORS
    )
