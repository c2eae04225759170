"""Defects in INFO: what the server says of itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plumbline.reference_broker.nats.connection import Connection
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect, replace
from plumbline.wire.nats import Decoder, Info, Limits, Sender

DEFAULT_MAX_PAYLOAD = 1024 * 1024


def _change_info(broker: Broker, change: Callable[[dict[str, Any]], None]) -> None:
    """Alter the fields of every INFO."""
    original = broker.identity.fields

    def fields(connection: Connection) -> dict[str, Any]:
        found = original(connection)
        change(found)
        return found

    replace(broker.identity, "fields", fields)


@defect("info-ends-with-lf", breaks=("CORE-001",), summary="INFO ends with LF in place of CRLF.")
def _(broker: Broker) -> None:
    def send_info(connection: Connection) -> None:
        broker.send(connection, Info.make(broker.identity.fields(connection)).raw.replace(b"\r\n", b"\n"))

    replace(broker, "send_info", send_info)


@defect("info-without-go", breaks=("CORE-002",), summary="INFO lacks the field go.")
def _(broker: Broker) -> None:
    _change_info(broker, lambda fields: fields.__delitem__("go"))


@defect("info-has-port-as-text", breaks=("CORE-002",), summary="The port in INFO is text.")
def _(broker: Broker) -> None:
    _change_info(broker, lambda fields: fields.update(port=str(fields["port"])))


@defect(
    "max-payload-is-1000000-by-default",
    breaks=("CORE-003",),
    summary="Unless configured otherwise, max_payload is 1000000.",
)
def _(broker: Broker) -> None:
    config = broker.config
    if config.max_payload != DEFAULT_MAX_PAYLOAD:
        return
    limits = Limits(config.max_control_line, 1_000_000)
    _change_info(broker, lambda fields: fields.update(max_payload=limits.max_payload))
    replace(broker, "make_decoder", lambda: Decoder(Sender.CLIENT, limits))


@defect("info-has-proto-0", breaks=("CORE-004",), summary="INFO has proto 0.")
def _(broker: Broker) -> None:
    _change_info(broker, lambda fields: fields.update(proto=0))


@defect(
    "jetstream-is-not-announced",
    breaks=("CORE-005",),
    summary="INFO does not say that JetStream is there.",
    needs=("jetstream",),
)
def _(broker: Broker) -> None:
    _change_info(broker, lambda fields: fields.__delitem__("jetstream"))


@defect(
    "jetstream-is-always-announced",
    breaks=("CORE-005",),
    summary="INFO says that JetStream is there, enabled or not.",
)
def _(broker: Broker) -> None:
    _change_info(broker, lambda fields: fields.update(jetstream=True))


@defect(
    "authentication-is-always-announced",
    breaks=("CORE-006",),
    summary="INFO says that credentials are required, although none are.",
)
def _(broker: Broker) -> None:
    _change_info(broker, lambda fields: fields.update(auth_required=True))


@defect(
    "authentication-is-not-announced",
    breaks=("CORE-060",),
    summary="INFO does not say that credentials are required.",
)
def _(broker: Broker) -> None:
    _change_info(broker, lambda fields: fields.pop("auth_required", None))


@defect(
    "headers-are-always-announced",
    breaks=("CORE-065",),
    summary="INFO says that headers are supported although they are switched off.",
)
def _(broker: Broker) -> None:
    _change_info(broker, lambda fields: fields.update(headers=True))
