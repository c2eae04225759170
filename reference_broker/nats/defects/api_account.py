"""Defects in the account's info, and in how the API hears requests at all."""

from __future__ import annotations

from plumbline.reference_broker.nats.connection import Connection
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect, replace
from plumbline.reference_broker.nats.defects.api_alterations import alter_answer, alter_success
from plumbline.reference_broker.nats.defects.jetstream_parts import jetstream_defect, jetstream_of

KIND = "account_info"


@jetstream_defect(
    "account-info-has-another-type",
    breaks=("JS-API-001",),
    summary="The type of the account info lacks _response.",
)
def _(broker: Broker) -> None:
    alter_answer(broker, KIND, lambda fields, _: fields.update(type="io.nats.jetstream.api.v1.account_info"))


@jetstream_defect(
    "account-info-without-storage", breaks=("JS-API-002",), summary="The account info lacks storage."
)
def _(broker: Broker) -> None:
    alter_success(broker, KIND, lambda fields, _: fields.pop("storage"))


@jetstream_defect(
    "account-without-limits-has-zeros",
    breaks=("JS-API-003",),
    summary="A limit that is not set is shown as 0.",
)
def _(broker: Broker) -> None:
    alter_success(broker, KIND, lambda fields, _: fields["limits"].update(max_streams=0, max_consumers=0))


@jetstream_defect(
    "api-errors-are-not-counted",
    breaks=("JS-API-004",),
    summary="A request that fails leaves api.errors as it is.",
)
def _(broker: Broker) -> None:
    alter_success(broker, KIND, lambda fields, _: fields["api"].update(errors=0))


@jetstream_defect(
    "api-without-reply-answers-the-last",
    breaks=("JS-API-005",),
    summary="The answer to a request without reply subject goes to that of the request before.",
)
def _(broker: Broker) -> None:
    api = jetstream_of(broker).api
    handle = api.request
    last: list[bytes | None] = [None]

    def request(path: bytes, reply: bytes | None, header_block: bytes, body: bytes, now: int) -> bool:
        last[0] = reply or last[0]
        return handle(path, last[0], header_block, body, now)

    replace(api, "request", request)


@jetstream_defect(
    "api-unknown-request-has-no-responder",
    breaks=("JS-API-007",),
    summary="A request that the API does not have is answered with 503.",
)
def _(broker: Broker) -> None:
    api = jetstream_of(broker).api
    handle = api.request

    def request(path: bytes, reply: bytes | None, header_block: bytes, body: bytes, now: int) -> bool:
        known = path.startswith(b"DIRECT.GET.") or api.find(path.decode("utf-8", "replace").split("."))
        return bool(known) and handle(path, reply, header_block, body, now)

    replace(api, "request", request)


@defect(
    "api-without-jetstream-is-silent",
    breaks=("JS-API-008",),
    summary="A server without JetStream leaves requests for the account info unanswered instead of 503.",
)
def _(broker: Broker) -> None:
    nobody_responds = broker.nobody_responds

    def silent(connection: Connection, subject: bytes, reply: bytes) -> None:
        if subject != b"$JS.API.INFO":
            nobody_responds(connection, subject, reply)

    replace(broker, "nobody_responds", silent)
