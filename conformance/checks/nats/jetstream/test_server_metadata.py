"""What a server adds to the metadata of streams and consumers. ADR-44, "Server-set metadata"."""

from __future__ import annotations

import json
from typing import Any

from plumbline.conformance.check import verifies
from plumbline.conformance.checks.nats.jetstream.api_answers import field, fits
from plumbline.conformance.nats.session import NatsSession

SOURCE = 'ADR-44, "Server-set metadata"'
METADATA = "config.metadata"


@verifies("JS-API-191", source=SOURCE, since="2.11")
def test_a_stream_shows_the_level_and_the_version_of_its_server(session: NatsSession) -> None:
    """STREAM.INFO shows _nats.level and _nats.ver."""
    stream = session.stage.stream("S", subjects=[session.name("s")])
    _shows_its_server(session, session.stage.stream_info(stream))


@verifies("JS-API-191", source=SOURCE, since="2.11")
def test_a_consumer_shows_the_level_and_the_version_of_its_server(session: NatsSession) -> None:
    """CONSUMER.INFO shows _nats.level and _nats.ver."""
    stream = session.stage.stream("S", subjects=[session.name("s")])
    consumer = session.stage.consumer(stream, "C")
    _shows_its_server(session, session.stage.consumer_info(stream, consumer))


def _shows_its_server(session: NatsSession, info: dict[str, Any]) -> None:
    account = session.stage.answer("INFO")
    fits(session, account, "api.level", lambda found: isinstance(found, int), "api.level: a number")
    level = str(field(account, "api.level"))
    fits(session, info, METADATA, lambda found: isinstance(found, dict), f"{METADATA}: an object")
    metadata = field(info, METADATA)
    session.require(
        metadata.get("_nats.level") == level,
        "the metadata does not show the API level of the server",
        expected=f'"_nats.level": "{level}", as $JS.API.INFO has it',
        actual=json.dumps(metadata),
    )
    server = session.target.info
    shown = metadata.get("_nats.ver")
    if session.target.is_cluster or "cluster" in server or not server.get("jetstream"):
        is_right, expected = isinstance(shown, str), "a version"  # another server may host it
    else:
        is_right, expected = shown == server.get("version"), f'"{server.get("version")}", as INFO has it'
    session.require(
        is_right,
        "the metadata does not show the version of the server",
        expected=f'"_nats.ver": {expected}',
        actual=json.dumps(metadata),
    )
