"""What is on a server: its streams, over connections of our own that make nothing."""

from __future__ import annotations

from typing import Any

from conformance.session import Session
from conformance.stage import Stage
from conformance.sweep import all_stream_names
from conformance.target import Url, open_target


def stream_names(url: str) -> list[str]:
    """All of them."""
    with Session(open_target(Url.parse(url))) as session:
        return all_stream_names(session)


def make_streams(url: str) -> list[str]:
    """Streams of somebody else: with messages, with consumers that have some of them pending."""
    with Session(open_target(Url.parse(url), run="other")) as session:
        for name in ("ORDERS", "PL_not_a_run", "PLAIN"):
            _make(session.stage, name)
    return stream_names(url)


def _make(stage: Stage, name: str) -> None:
    config = {"name": name, "subjects": [f"somebody.{name}.>"], "storage": "memory"}
    stage.api("STREAM.CREATE", name, body=config)
    for number in range(3):
        stage.publish(f"somebody.{name}.{number}", b"theirs")
    consumer = {"durable_name": "D", "ack_policy": "explicit"}
    stage.api("CONSUMER.DURABLE.CREATE", name, "D", body={"stream_name": name, "config": consumer})
    stage.request(f"$JS.API.CONSUMER.MSG.NEXT.{name}.D")


def state_of(url: str) -> dict[str, Any]:
    """Every stream's and consumer's configuration and state, without the time of asking."""
    with Session(open_target(Url.parse(url))) as session:
        found = {}
        for name in all_stream_names(session):
            found[name] = session.stage.stream_info(name)
            for consumer in session.stage.api("CONSUMER.NAMES", name)["consumers"]:
                found[f"{name}/{consumer}"] = session.stage.consumer_info(name, consumer)
    for info in found.values():
        info.pop("ts", None)
    return found
