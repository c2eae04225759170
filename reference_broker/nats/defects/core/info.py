"""Defects in INFO: what the server says of itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plumbline.reference_broker.nats.connection import NatsClientConnection
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect, replace
from plumbline.reference_broker.nats.defects.methods import method_defect
from plumbline.wire.nats import Decoder, Info, Limits, Sender

DEFAULT_MAX_PAYLOAD = 1024 * 1024


def _change_info(broker: Broker, change: Callable[[dict[str, Any]], None]) -> None:
    """Alter the fields of every INFO."""
    original = broker.identity.fields

    def fields(connection: NatsClientConnection) -> dict[str, Any]:
        found = original(connection)
        change(found)
        return found

    replace(broker.identity, "fields", fields)


@method_defect(Broker.send_info, "CORE-001")
def info_ends_with_lf(broker: Broker, connection: NatsClientConnection) -> None:
    """INFO ends with LF in place of CRLF."""
    broker.send(connection, Info.make(broker.identity.fields(connection)).raw.replace(b"\r\n", b"\n"))


@defect("CORE-002")
def info_has_port_as_text(broker: Broker) -> None:
    """The port in INFO is text."""
    _change_info(broker, lambda fields: fields.update(port=str(fields["port"])))


@defect("CORE-003")
def max_payload_is_1000000_by_default(broker: Broker) -> None:
    """Unless configured otherwise, max_payload is 1000000."""
    config = broker.config
    if config.max_payload != DEFAULT_MAX_PAYLOAD:
        return
    limits = Limits(config.max_control_line, 1_000_000)
    _change_info(broker, lambda fields: fields.update(max_payload=limits.max_payload))
    replace(broker, "make_decoder", lambda: Decoder(Sender.CLIENT, limits))
