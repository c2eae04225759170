"""Defects in the account's info, and in how the API hears requests at all."""

from __future__ import annotations

from plumbline.reference_broker.nats.connection import NatsClientConnection
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect, replace
from plumbline.reference_broker.nats.defects.methods import jetstream_of


@defect("JS-API-005")
def api_without_reply_answers_the_last(broker: Broker) -> None:
    """The answer to a request without reply subject goes to that of the request before."""
    api = jetstream_of(broker).api
    handle = api.request
    last: list[bytes | None] = [None]

    def request(path: bytes, reply: bytes | None, header_block: bytes, body: bytes, now: int) -> bool:
        last[0] = reply or last[0]
        return handle(path, last[0], header_block, body, now)

    replace(api, "request", request)


@defect("JS-API-007")
def api_unknown_request_has_no_responder(broker: Broker) -> None:
    """A request that the API does not have is answered with 503."""
    api = jetstream_of(broker).api
    handle = api.request

    def request(path: bytes, reply: bytes | None, header_block: bytes, body: bytes, now: int) -> bool:
        known = path.startswith(b"DIRECT.GET.") or api.find(path.decode("utf-8", "replace").split("."))
        return bool(known) and handle(path, reply, header_block, body, now)

    replace(api, "request", request)


@defect("JS-API-008", needs=())
def api_without_jetstream_is_silent(broker: Broker) -> None:
    """A server without JetStream leaves requests for the account info unanswered instead of 503."""
    nobody_responds = broker.send_no_responders

    def silent(connection: NatsClientConnection, subject: bytes, reply: bytes) -> None:
        if subject != b"$JS.API.INFO":
            nobody_responds(connection, subject, reply)

    replace(broker, "send_no_responders", silent)
