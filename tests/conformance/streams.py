"""What is on a server: streams of somebody else, made by a client that is not ours, and how they are."""

from __future__ import annotations

import asyncio
from typing import Any

import nats

from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.runner.sweep import all_stream_names
from plumbline.conformance.targets.target import NatsUrl, open_target

THEIRS = ("ORDERS", "PLAIN", "PL_not_of_a_run")


def stream_names(url: str) -> list[str]:
    """All of them."""
    with NatsSession(open_target(NatsUrl.parse(url))) as session:
        return sorted(all_stream_names(session))


def make_streams(url: str) -> None:
    """``THEIRS``, with messages, each with a consumer that has one of them pending."""
    asyncio.run(_make_streams(url))


async def _make_streams(url: str) -> None:
    client = await nats.connect(url)
    try:
        jetstream = client.jetstream()
        for name in THEIRS:
            await jetstream.add_stream(name=name, subjects=[f"somebody.{name}.>"])
            for number in range(3):
                await jetstream.publish(f"somebody.{name}.{number}", b"theirs")
            consumer = await jetstream.pull_subscribe(f"somebody.{name}.>", "durable")
            await consumer.fetch(1)
    finally:
        await client.close()


def state_of(url: str) -> dict[str, Any]:
    """Every stream's and consumer's configuration and state, without the time of asking."""
    found: dict[str, Any] = {}
    with NatsSession(open_target(NatsUrl.parse(url))) as session:
        for name in all_stream_names(session):
            found[name] = session.stage.stream_info(name)
            for consumer in session.stage.api("CONSUMER.NAMES", name)["consumers"]:
                found[f"{name}/{consumer}"] = session.stage.consumer_info(name, consumer)
    for info in found.values():
        info.pop("ts", None)
    return found
