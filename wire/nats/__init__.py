"""The NATS client protocol, both directions: bytes <-> operations. Import it from here.

    decoder = Decoder(Sender.SERVER)
    for operation in decoder.feed(data): ...
    socket.sendall(Pub.make("orders.new", b"hello").raw)

``nats_operations`` says what an operation is, ``nats_decoder`` how bytes become one.
Sources: docs.nats.io, "Client Protocol"; ADR-4 for HPUB and HMSG.
"""

from __future__ import annotations

from plumbline.wire.nats.decoder import Decoder, Limits
from plumbline.wire.nats.operations import (
    CRLF,
    Connect,
    Err,
    HeaderPayload,
    HMsg,
    HPub,
    Info,
    JsonOperation,
    Msg,
    Ok,
    Operation,
    Payload,
    Ping,
    Pong,
    Pub,
    Raw,
    Sub,
    Unsub,
    printable,
)
from plumbline.wire.sender import Sender

__all__ = [
    "CRLF",
    "Connect",
    "Decoder",
    "Err",
    "HMsg",
    "HPub",
    "HeaderPayload",
    "Info",
    "JsonOperation",
    "Limits",
    "Msg",
    "Ok",
    "Operation",
    "Payload",
    "Ping",
    "Pong",
    "Pub",
    "Raw",
    "Sender",
    "Sub",
    "Unsub",
    "printable",
]
