"""The request/reply API on ``$JS.API.>``: which request is which, how replies are shaped.

The requests themselves are in ``stream_api`` and ``consumer_api``. A request that is none of these gets no
answer. Source: docs.nats.io, "JetStream wire API Reference"; ADR-1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from plumbline.reference_broker.nats.jetstream import advisories, errors
from plumbline.reference_broker.nats.jetstream.api import (
    consumers as consumer_api,
)
from plumbline.reference_broker.nats.jetstream.api import (
    direct as direct_api,
)
from plumbline.reference_broker.nats.jetstream.api import (
    snapshots as snapshot_api,
)
from plumbline.reference_broker.nats.jetstream.api import (
    streams as stream_api,
)
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.errors import JetStreamError
from plumbline.wire.errors import ProtocolError
from plumbline.wire.nats.headers import Headers
from plumbline.wire.units import read_number

if TYPE_CHECKING:
    from plumbline.reference_broker.nats.jetstream.service import JetStream

_PAGED = {"total": 0, "offset": 0, "limit": 0}


Answer = Callable[["JetStream", Request], dict[str, Any]]


class ApiRoute(Struct, frozen=True):
    """Where a verb leads.

    ``kind`` names the reply type; ``names`` is how many tokens follow the verb; ``on_error`` are fields of
    every reply; ``rule`` is what must hold of the level for the verb to be known; of what is not ``audited``
    only an error makes an advisory.
    """

    answer: Answer
    kind: str
    names: range
    on_error: dict[str, Any] = {}
    rule: str = ""
    audited: bool = True


def _exactly(count: int) -> range:
    return range(count, count + 1)


ROUTES: dict[str, ApiRoute] = {
    "INFO": ApiRoute(stream_api.account_info, "account_info", _exactly(0)),
    "STREAM.CREATE": ApiRoute(stream_api.create, "stream_create", _exactly(1)),
    "STREAM.UPDATE": ApiRoute(stream_api.update, "stream_update", _exactly(1)),
    "STREAM.INFO": ApiRoute(stream_api.info, "stream_info", _exactly(1), _PAGED),
    "STREAM.NAMES": ApiRoute(stream_api.names, "stream_names", _exactly(0), {**_PAGED, "streams": None}),
    "STREAM.LIST": ApiRoute(stream_api.list_, "stream_list", _exactly(0), {**_PAGED, "streams": []}),
    "STREAM.DELETE": ApiRoute(stream_api.delete, "stream_delete", _exactly(1)),
    "STREAM.PURGE": ApiRoute(stream_api.purge, "stream_purge", _exactly(1), {"purged": 0}),
    "STREAM.MSG.GET": ApiRoute(stream_api.message_get, "stream_msg_get", _exactly(1), audited=False),
    "STREAM.MSG.DELETE": ApiRoute(stream_api.message_delete, "stream_msg_delete", _exactly(1)),
    "STREAM.SNAPSHOT": ApiRoute(snapshot_api.snapshot, "stream_snapshot", _exactly(1)),
    "STREAM.RESTORE": ApiRoute(snapshot_api.restore, "stream_restore", _exactly(1)),
    "CONSUMER.CREATE": ApiRoute(consumer_api.create, "consumer_create", range(1, 256)),
    "CONSUMER.DURABLE.CREATE": ApiRoute(consumer_api.create_durable, "consumer_create", range(1, 256)),
    "CONSUMER.INFO": ApiRoute(consumer_api.info, "consumer_info", _exactly(2)),
    "CONSUMER.NAMES": ApiRoute(
        consumer_api.names, "consumer_names", _exactly(1), {**_PAGED, "consumers": []}
    ),
    "CONSUMER.LIST": ApiRoute(consumer_api.list_, "consumer_list", _exactly(1), {**_PAGED, "consumers": []}),
    "CONSUMER.UNPIN": ApiRoute(consumer_api.unpin, "consumer_unpin", _exactly(2), rule="priority_groups"),
    "CONSUMER.DELETE": ApiRoute(consumer_api.delete, "consumer_delete", _exactly(2)),
    "CONSUMER.PAUSE": ApiRoute(
        consumer_api.pause, "consumer_pause", _exactly(2), {"paused": False}, rule="consumer_pause"
    ),
    "CONSUMER.RESET": ApiRoute(
        consumer_api.reset, "consumer_reset", _exactly(2), {"reset_seq": 0}, rule="consumer_reset"
    ),
}
_LONGEST_VERB = 3


class Api:
    """Counts requests and errors, finds the route, writes the reply."""

    def __init__(self, jetstream: JetStream) -> None:
        self.jetstream = jetstream
        self.total = 0
        self.failed = 0

    def request(self, path: bytes, reply: bytes | None, header_block: bytes, body: bytes, now: int) -> bool:
        """``path`` is what follows ``$JS.API.``. False if the client should get 503, no responders."""
        if path.startswith(b"DIRECT.GET."):
            return direct_api.get(self.jetstream, path[len(b"DIRECT.GET.") :], reply, body)
        found = self.find(path.decode("utf-8", "replace").split("."))
        if found is None:
            return True
        route, names = found
        answer = self.answer(route, Request(names, body, now), header_block)
        encoded = self.jetstream.encode(answer)
        if reply is not None:
            self.jetstream.host.publish(reply, None, b"", encoded)
        if route.audited or "error" in answer:
            advisories.api_audit(self.jetstream, path, body, encoded, now)
        return True

    def find(self, tokens: list[str]) -> tuple[ApiRoute, list[str]] | None:
        for length in range(min(_LONGEST_VERB, len(tokens)), 0, -1):
            route = ROUTES.get(".".join(tokens[:length]))
            if route is not None and len(tokens) - length in route.names:
                known = not route.rule or getattr(self.jetstream.rules, route.rule)
                return (route, tokens[length:]) if known else None
        return None

    def answer(self, route: ApiRoute, request: Request, header_block: bytes) -> dict[str, Any]:
        self.total += 1
        kind = {"type": f"io.nats.jetstream.api.v1.{route.kind}_response"}
        try:
            self.check_level(header_block)
            return kind | route.answer(self.jetstream, request)
        except JetStreamError as error:
            self.failed += 1
            return kind | {"error": error.reply()} | route.on_error

    def check_level(self, header_block: bytes) -> None:
        """ADR-44, ``Nats-Required-Api-Level``: servers with levels refuse what is above theirs."""
        own_level = self.jetstream.rules.api_level
        if own_level < 2 or not header_block:
            return
        try:
            required_level = Headers.parse(header_block).get("Nats-Required-Api-Level")
        except ProtocolError:
            return
        if required_level is None:
            return
        level = read_number(required_level)
        if level is None or level > own_level:
            raise errors.REQUIRED_API_LEVEL()
