"""The client's methods during the AMQP handshake. Pure: no sockets.

Source: AMQP 0-9-1, section 2.2.4; RabbitMQ, "Access Control" and "Protocol Extensions" (capabilities).
"""

from __future__ import annotations

from typing import Any

from plumbline.conformance.targets.urls import AmqpUrl
from plumbline.wire.amqp import Method
from plumbline.wire.amqp.fields import encode_entries

# What an ordinary client of today says that it can do.
CAPABILITIES: dict[str, Any] = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "authentication_failure_close": True,
    "per_consumer_qos": True,
}
# What a connection may be given beside the arguments of connection.tune-ok.
OPTIONS = (
    "user", "password", "mechanism", "response", "locale", "capabilities", "client_properties",
    "virtual_host", "channel_max", "frame_max", "heartbeat",
)  # fmt: skip


def start_ok(url: AmqpUrl, options: dict[str, Any]) -> Method:
    """The URL's mechanism and credentials, unless ``options`` say otherwise."""
    user, password = options.get("user", url.user), options.get("password", url.password)
    mechanism = options.get("mechanism", url.mechanism)
    properties = {
        "product": "plumbline",
        "capabilities": options.get("capabilities", CAPABILITIES),
        **options.get("client_properties", {}),
    }
    return Method.make(
        "connection.start-ok",
        client_properties=properties,
        mechanism=mechanism,
        response=options.get("response", sasl_response(mechanism, user, password)),
        locale=options.get("locale", "en_US"),
    )


def tune_ok(tune: Method, options: dict[str, Any]) -> Method:
    """What the server proposes, without heartbeats, unless ``options`` say otherwise."""
    chosen = {
        "channel_max": tune.arguments["channel_max"],
        "frame_max": tune.arguments["frame_max"],
        "heartbeat": 0,
    }
    return Method.make(
        "connection.tune-ok", **{name: options.get(name, value) for name, value in chosen.items()}
    )


def sasl_response(mechanism: str, user: str, password: str) -> str:
    """What logs in. EXTERNAL needs nothing: the client certificate has been shown."""
    match mechanism:
        case "EXTERNAL":
            return ""
        case "AMQPLAIN":
            entries = encode_entries({"LOGIN": user, "PASSWORD": password})
            return entries.decode("utf-8", "surrogateescape")
        case _:
            return f"\0{user}\0{password}"


def open_(url: AmqpUrl, options: dict[str, Any]) -> Method:
    """The URL's virtual host, unless ``options`` say otherwise."""
    return Method.make("connection.open", virtual_host=options.get("virtual_host", url.virtual_host))
