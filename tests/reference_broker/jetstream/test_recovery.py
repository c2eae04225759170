"""A crash between any two bytes: what was acknowledged is there, and nothing that was never sent."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plumbline.reference_broker.nats.jetstream.files import layout
from tests.reference_broker.jetstream.disk import Files, Kept, apply, steps
from tests.reference_broker.virtual import Client

CREATE = "$JS.API.STREAM.CREATE.F"
CONSUMER = "$JS.API.CONSUMER.DURABLE.CREATE.F.D"


def request(client: Client, subject: str, body: str = "", reply: str = "inbox") -> list[str]:
    return client.ask(f"PUB {subject} {reply} {len(body)}\n{body}")


def with_stream(kept: Kept, retention: str = "limits", **more: object) -> Client:
    client = kept.client()
    client.ask("SUB inbox 1\nSUB pulled 2\nSUB acked 3")
    fields = "".join(f',"{name}":{value}' for name, value in more.items())
    request(client, CREATE, f'{{"name":"F","subjects":["f.*"],"retention":"{retention}"{fields}}}')
    request(client, CONSUMER, '{"stream_name":"F","config":{"durable_name":"D","ack_policy":"explicit"}}')
    return client


def publish(client: Client, msg_id: str) -> str:
    """The PubAck."""
    headers = f"NATS/1.0\r\nNats-Msg-Id: {msg_id}\r\n\r\n".encode()
    sizes = f"{len(headers)} {len(headers) + len(msg_id)}"
    data = f"HPUB f.x inbox {sizes}\r\n".encode() + headers + msg_id.encode() + b"\r\n"
    (answer,) = client.ask(data)
    return answer


def pull(client: Client, batch: int = 1) -> list[tuple[str, int, str]]:
    """Ack subject, delivery count and payload of each message."""
    subject = "$JS.API.CONSUMER.MSG.NEXT.F.D"
    texts = request(client, subject, f'{{"batch":{batch},"no_wait":true}}', "pulled")
    found = []
    for text in texts:
        subjects = re.search(r"(\$JS\.ACK\.F\.D\.(\d+)\.\S+)", text)
        if subjects:
            found.append((subjects[1], int(subjects[2]), re.findall(r"m\d", text)[-1]))
    return found


def shown(info: str) -> str:
    """The fields of an info answer, without the size of the message."""
    return info.replace("\\", "").partition("{")[2]


SCRIPT = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(0, 5)),
        st.tuples(st.just("pull"), st.integers(1, 3)),
        st.tuples(st.just("ack"), st.integers(0, 3)),
    ),
    min_size=1,
    max_size=14,
)


@given(SCRIPT, st.sampled_from(["limits", "workqueue", "interest"]), st.data())
def test_a_crash_anywhere_loses_nothing_acknowledged(
    script: Sequence[tuple[str, int]], retention: str, data: st.DataObject
) -> None:
    kept = Kept()
    client = with_stream(kept, retention)
    events: list[tuple[int, str, str]] = []  # number of changes before it, what happened, message
    attempted: set[str] = set()
    open_: list[tuple[str, str]] = []
    first = len(kept.written)
    for name, number in script:
        if name == "publish":
            attempted.add(f"m{number}")
            answer = publish(client, f"m{number}")
            assert '"seq":' in answer
            events.append((len(kept.written), "stored", f"m{number}"))
        elif name == "pull":
            open_ += [(subject, payload) for subject, _, payload in pull(client, number)]
        elif open_:
            subject, payload = open_.pop(number % len(open_))
            events.append((len(kept.written), "acking", payload))
            if request(client, subject, "+ACK", "acked"):
                events.append((len(kept.written), "acked", payload))

    crashed_in = data.draw(st.integers(first, len(kept.written)), label="crash in change")
    files = apply({}, kept.written[:crashed_in])
    torn = list(steps(kept.written[crashed_in : crashed_in + 1]))
    files = apply(files, torn[: data.draw(st.integers(0, len(torn)), label="after byte")])
    stored = {name for number, what, name in events if what == "stored" and number <= crashed_in}
    acked = {name for number, what, name in events if what == "acked" and number <= crashed_in}
    open_for_sure = stored - {
        name for number, what, name in events if what == "acking" and number <= crashed_in
    }

    again = Kept(files, now=kept.now)
    client = again.client()
    client.ask("SUB inbox 1\nSUB pulled 2")
    there = [message.payload.decode() for message in again.service.streams["F"].store.messages()]
    assert len(there) == len(set(there)), "a message id is stored twice"
    assert set(there) <= attempted
    assert (stored if retention == "limits" else open_for_sure) <= set(there)
    again.pass_time(31)  # ack_wait
    delivered = [payload for _, _, payload in pull(client, 100)]
    assert len(delivered) == len(set(delivered))
    assert not acked & set(delivered), "delivered after its acknowledgement was confirmed"
    assert open_for_sure <= set(delivered)
    for name in stored:
        assert '"duplicate": true' in publish(client, name)


def test_counters_and_delivery_counts_go_on_after_a_restart() -> None:
    kept = Kept()
    client = with_stream(kept)
    for number in range(4):
        publish(client, f"m{number}")
    subjects = [subject for subject, _, _ in pull(client, 2)]
    request(client, subjects[0], "+ACK", "acked")
    (before,) = request(client, "$JS.API.CONSUMER.INFO.F.D")
    again = Kept(kept.files, now=kept.now)
    client = again.client()
    client.ask("SUB inbox 1\nSUB pulled 2")
    (after,) = request(client, "$JS.API.CONSUMER.INFO.F.D")
    assert shown(after) == re.sub(r',"last_active":"[^"]*"', "", shown(before))
    assert [(count, payload) for _, count, payload in pull(client, 3)] == [(1, "m2"), (1, "m3")]
    again.pass_time(31)
    assert next((count, payload) for _, count, payload in pull(client, 3)) == (2, "m1")


def test_a_consumer_that_begins_beyond_the_end_still_does_after_a_restart() -> None:
    kept = Kept()
    client = with_stream(kept)
    request(client, "$JS.API.CONSUMER.DELETE.F.D")
    config = (
        '{"durable_name":"D","ack_policy":"explicit","deliver_policy":"by_start_sequence","opt_start_seq":3}'
    )
    request(client, CONSUMER, f'{{"stream_name":"F","config":{config}}}')
    again = Kept(kept.files, now=kept.now)
    client = again.client()
    client.ask("SUB inbox 1\nSUB pulled 2")
    for number in range(4):
        publish(client, f"m{number}")
    assert [payload for _, _, payload in pull(client, 9)] == ["m2", "m3"]


def test_streams_in_memory_are_gone() -> None:
    kept = Kept()
    with_stream(kept, storage='"memory"')
    assert not kept.files
    assert not Kept(kept.files).service.streams


def test_a_deleted_stream_and_a_deleted_consumer_stay_deleted() -> None:
    kept = Kept()
    client = with_stream(kept)
    request(client, "$JS.API.CONSUMER.DELETE.F.D")
    assert not Kept(kept.files).service.streams["F"].consumers
    request(client, "$JS.API.STREAM.DELETE.F")
    assert kept.files == {}


def test_an_atomic_batch_is_there_whole_or_not_at_all() -> None:
    kept = Kept()
    client = with_stream(kept, allow_atomic="true")
    begun = len(kept.written)
    for number, commit in ((1, ""), (2, ""), (3, "Nats-Batch-Commit: 1\r\n")):
        block = f"NATS/1.0\r\nNats-Batch-Id: b\r\nNats-Batch-Sequence: {number}\r\n{commit}\r\n".encode()
        client.ask(f"HPUB f.x inbox {len(block)} {len(block) + 1}\r\n".encode() + block + b"x\r\n")
    assert len(kept.service.streams["F"].store) == 3
    for crashed in range(len(list(steps(kept.written[begun:])))):
        files = apply(apply({}, kept.written[:begun]), list(steps(kept.written[begun:]))[:crashed])
        assert len(Kept(files).service.streams["F"].store) == 0


def test_damaged_block_report_has_file_offset_size_and_sequence() -> None:
    kept = Kept()
    client = with_stream(kept)
    for number in range(3):
        publish(client, f"m{number}")
    path = layout.block(layout.stream_folder("F"), 1)
    size = len(kept.files[path])
    again = Kept({**kept.files, path: kept.files[path][:-1]})
    record = (size - 30) // 3
    (warning,) = again.warnings
    assert warning == (
        f"streams/F/msgs/1.blk is damaged at byte {size - record} (a record of {record} bytes of which "
        f"{record - 1} are there): the last {record - 1} bytes are cut, stream 'F' has lost what was written "
        "there, from sequence 3 on"
    )


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"config":{},"created":1}\n00\n'])
def test_a_stream_without_readable_metadata_is_put_aside_and_kept(damage: bytes) -> None:
    kept = Kept()
    publish(with_stream(kept), "m0")
    folder = layout.stream_folder("F")
    again = Kept({**kept.files, layout.stream_metadata(folder): damage})
    assert not again.service.streams
    (warning,) = again.warnings
    assert "streams/F/stream.json is damaged: the stream is not served; streams/F is kept as" in warning
    assert any(path.startswith("damaged/") and path.endswith("1.blk") for path in again.files)
    with_stream(again)
    assert len(again.service.streams["F"].store) == 0


def test_damaged_consumer_log_is_cut_and_reported() -> None:
    kept = Kept()
    client = with_stream(kept)
    publish(client, "m0")
    subject = pull(client)[0][0]
    request(client, subject, "+ACK", "acked")
    path = layout.consumer_log(layout.stream_folder("F"), "D")
    again = Kept({**kept.files, path: kept.files[path][:-3]}, now=kept.now)
    (warning,) = again.warnings
    assert f"{path} is damaged at byte" in warning
    assert "after consumer sequence 1" in warning
    again.pass_time(31)
    client = again.client()
    client.ask("SUB pulled 2")
    assert [(count, payload) for _, count, payload in pull(client)] == [(2, "m0")]


@given(st.data())
def test_any_bit_of_any_file_may_be_wrong(data: st.DataObject) -> None:
    kept = Kept()
    client = with_stream(kept)
    for number in range(3):
        publish(client, f"m{number}")
    pull(client, 2)
    path = data.draw(st.sampled_from(sorted(kept.files)))
    bit = data.draw(st.integers(0, len(kept.files[path]) * 8 - 1))
    changed = bytearray(kept.files[path])
    changed[bit // 8] ^= 1 << bit % 8
    damaged: Files = {**kept.files, path: bytes(changed)}
    again = Kept(damaged, now=kept.now)
    assert len(again.warnings) == 1
    assert path in again.warnings[0]
    assert not Kept(again.files, now=kept.now).warnings


@given(st.integers(0, 6), st.data())
def test_copies_have_all_that_their_origin_has_after_a_crash(count: int, data: st.DataObject) -> None:
    kept = Kept()
    client = with_stream(kept)
    for name, origin in (("M", '"mirror":{"name":"F"}'), ("S", '"sources":[{"name":"F"}]')):
        request(client, f"$JS.API.STREAM.CREATE.{name}", f'{{"name":"{name}",{origin}}}')
    first = len(kept.written)
    for number in range(count):
        publish(client, f"m{number}")
    crashed = data.draw(st.integers(0, len(list(steps(kept.written[first:])))), label="after byte")
    files = apply(apply({}, kept.written[:first]), list(steps(kept.written[first:]))[:crashed])
    again = Kept(files, now=kept.now)
    payloads = {
        name: [message.payload for message in stream.store.messages()]
        for name, stream in again.service.streams.items()
    }
    assert payloads["M"] == payloads["F"]
    assert payloads["S"] == payloads["F"]
    client = again.client()
    client.ask("SUB inbox 1")
    publish(client, "m9")
    assert {len(stream.store) for stream in again.service.streams.values()} == {len(payloads["F"]) + 1}


def test_ack_all_survives_restart() -> None:
    kept = Kept()
    client = with_stream(kept)
    config = '{"stream_name":"F","config":{"durable_name":"D","ack_policy":"all"}}'
    request(client, "$JS.API.CONSUMER.DELETE.F.D")
    request(client, CONSUMER, config)
    for number in range(4):
        publish(client, f"m{number}")
    subjects = [subject for subject, _, _ in pull(client, 3)]
    request(client, subjects[1], "+ACK", "acked")
    again = Kept(kept.files, now=kept.now)
    again.pass_time(31)
    client = again.client()
    client.ask("SUB pulled 2")
    assert [(count, payload) for _, count, payload in pull(client, 9)] == [(2, "m2"), (1, "m3")]


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_a_removal_that_was_lost_is_made_up_for(retention: str) -> None:
    kept = Kept()
    client = with_stream(kept, retention)
    publish(client, "m0")
    publish(client, "m1")
    request(client, pull(client)[0][0], "+ACK", "acked")
    path = layout.block(layout.stream_folder("F"), 1)
    again = Kept({**kept.files, path: kept.files[path][:-1]}, now=kept.now)
    assert [message.payload for message in again.service.streams["F"].store.messages()] == [b"m1"]
