"""How many 100-byte messages a second one core decodes: ``python -m tests.bench.wire_amqp [RUNS]``.

What a broker hears (equal publishes, publishes with a message id each, acknowledgements) and what a consumer
hears (deliveries), in segments as they come from a file, a socket buffer and an Ethernet frame; and what a
broker writes. A second is one of this process's CPU time, so that other processes do not count.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from time import process_time

from plumbline.wire.amqp import SHAPES, Decoder, FrameType, Limits, Method, Sender, content_frames, frame
from tests.bench.command_line import runs_asked
from tests.bench.wire_nats import SEGMENTS, Rate, segments

BODY = b"x" * 100
OPERATIONS = 4000


def samples() -> dict[str, bytes]:
    """``OPERATIONS`` of each kind, by name."""
    publish = Method.make("basic.publish", 1, routing_key="orders", body=BODY)
    numbers = range(OPERATIONS)
    named = [
        Method.make(
            "basic.publish",
            1,
            routing_key="orders",
            body=BODY,
            properties={"delivery_mode": 2, "message_id": str(number)},
        )
        for number in numbers
    ]
    delivered = [
        Method.make(
            "basic.deliver", 1, consumer_tag="c", delivery_tag=number, routing_key="orders", body=BODY
        )
        for number in numbers
    ]
    acknowledged = [Method.make("basic.ack", 1, delivery_tag=number) for number in numbers]
    return {
        "publish": publish.raw * OPERATIONS,
        "publish, message_id": b"".join(method.raw for method in named),
        "deliver": b"".join(method.raw for method in delivered),
        "ack": b"".join(method.raw for method in acknowledged),
    }


def decode(chunks: list[bytes], limits: Limits) -> float:
    """CPU seconds that decoding takes."""
    decoder = Decoder(Sender.SERVER, limits)
    started = process_time()
    for chunk in chunks:
        decoder.feed(chunk)
    return process_time() - started


def write_deliveries() -> float:
    """CPU seconds that writing as many deliveries takes, the quick way."""
    shape = SHAPES["basic.deliver"]
    started = process_time()
    for number in range(OPERATIONS):
        payload = shape.encode_values(("c", number, False, "", "orders"))
        frame(FrameType.METHOD, 1, payload) + content_frames(1, b"\0\0", BODY)
    return process_time() - started


def measure(work: Callable[[], float], runs: int) -> Rate:
    """Operations a CPU second."""
    rates = sorted(OPERATIONS / work() for _ in range(runs))
    return Rate(rates[0], rates[len(rates) // 2], rates[-1])


def main() -> None:
    """Prints a table."""
    runs = runs_asked(__doc__, 25)
    python = f"{platform.python_implementation()} {platform.python_version()}"
    print(f"{python}, {runs} runs of {OPERATIONS} operations with {len(BODY)} B each")
    print(f"{'operations a second':30} {'segments':>10} {'min':>11} {'median':>11} {'max':>11}")
    for name, stream in samples().items():
        for segment, size in SEGMENTS.items():
            chunks = segments(stream, size)
            rate = measure(lambda chunks=chunks: decode(chunks, Limits()), runs)  # type: ignore[misc]
            print(f"{name} ({len(stream) // OPERATIONS} B)".ljust(30), f"{segment:>10} {rate}")
    print("write deliveries".ljust(30), f"{'':>10} {measure(write_deliveries, runs)}")


if __name__ == "__main__":
    main()
