"""Recorded frames of RabbitMQ and of a raw client are decoded as expected, and encoded again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from plumbline.wire.amqp import Decoder, Method, Sender, SentBy

TRANSCRIPTS = Path(__file__).with_name("amqp_transcripts.txt")
SENDERS = {"C->S": SentBy.CLIENT, "S->C": SentBy.SERVER}


def exchanged() -> Iterator[tuple[SentBy, int, str, bytes]]:
    """Who sent it, channel, method, bytes."""
    for line in TRANSCRIPTS.read_text().splitlines():
        if not line.startswith("#"):
            who, channel, method, raw = line.split()
            yield SENDERS[who], int(channel), method, bytes.fromhex(raw)


ALL = list(exchanged())


@pytest.mark.parametrize("number", range(len(ALL)), ids=lambda number: f"{number}-{ALL[number][2]}")
def test_transcripts_round_trip_byte_for_byte(number: int) -> None:
    sent_by, channel, name, raw = ALL[number]
    (found,) = Decoder(Sender.SERVER).feed(raw)
    assert isinstance(found, Method)
    assert (found.method, found.channel) == (name, channel)
    assert found.sent_by in (sent_by, SentBy.BOTH)
    again = Method.make(name, channel, properties=found.properties, body=found.body, **found.arguments)
    assert again == found


def test_transcript_gives_one_stream_per_side() -> None:
    stream = b"".join(raw for sent_by, _, _, raw in ALL if sent_by is SentBy.SERVER)
    names = [name for sent_by, _, name, _ in ALL if sent_by is SentBy.SERVER]
    for size in (1, 7, 100, len(stream)):
        decoder = Decoder(Sender.SERVER)
        chunks = [stream[at : at + size] for at in range(0, len(stream), size)]
        found = [operation for chunk in chunks for operation in decoder.feed(chunk)]
        assert [operation.method for operation in found] == names
        assert b"".join(operation.raw for operation in found) == stream
