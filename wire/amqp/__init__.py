"""AMQP 0-9-1 as RabbitMQ speaks it, both directions: bytes <-> operations. Import it from here.

    decoder = Decoder(Sender.CLIENT)          # of what clients send; a protocol header comes first
    for operation in decoder.feed(data):      # raises AmqpError: .kind, .reply_code, .channel, .operations
        operation.method                      # "basic.publish", "heartbeat", "protocol-header"
        operation.channel                     # 0 is the connection
        operation.raw                         # its exact bytes
    match operation:
        case Method(method="basic.publish"):
            operation.arguments["routing_key"]  # every argument of the method, by its name; read-only
            operation.properties              # those that are set: {"delivery_mode": 2}; None without a
            content operation.raw_properties, operation.body      # as sent: what a broker stores and delivers
            again

    Method.make("basic.publish", 1, routing_key="q", properties={"delivery_mode": 2}, body=b"x").raw
    Method.make("queue.declare", 1, queue="q", arguments={"x-max-length": 2}).raw

The quick way, for a broker (values in the order of the table, all of them):

    deliver = SHAPES["basic.deliver"]
    values = (consumer_tag, delivery_tag, False, exchange, routing_key)
    out = frame(FrameType.METHOD, channel, deliver.encode_values(values))
    out += content_frames(channel, raw_properties, body, frame_max=131072)

Malformed on purpose: ``frame(type, channel, payload, size=.., end=b"\\0")``, ``header_payload(...)``,
``Raw.make(bytes)``.

``amqp_methods`` is the table of methods, ``amqp_fields`` field tables, ``amqp_properties`` content
properties, ``amqp_frames`` framing, ``amqp_operations`` says what an operation is, ``amqp_decoder`` how bytes
become one.
Sources: AMQP 0-9-1 (document and XML); RabbitMQ, "Protocol Extensions" and "AMQP 0-9-1 Errata".
"""

from __future__ import annotations

from plumbline.wire.amqp.decoder import Decoder, Limits
from plumbline.wire.amqp.errors import AmqpError
from plumbline.wire.amqp.fields import (
    Decimal,
    Float,
    Integer,
    Table,
    Timestamp,
    decode_entries,
    encode_entries,
    encode_table,
)
from plumbline.wire.amqp.frames import (
    DEFAULT_FRAME_MAX,
    FRAME_END,
    FRAME_MIN_SIZE,
    FRAME_OVERHEAD,
    PROTOCOL_HEADER,
    FrameType,
    content_frames,
    frame,
    header_payload,
)
from plumbline.wire.amqp.methods import BY_NUMBERS, OBJECT_ARGUMENTS, SHAPES, MethodSpec, SentBy
from plumbline.wire.amqp.operations import Heartbeat, Method, Operation, ProtocolHeader, Raw
from plumbline.wire.amqp.properties import PROPERTIES, decode_properties, encode_properties
from plumbline.wire.sender import Sender

__all__ = [
    "BY_NUMBERS",
    "DEFAULT_FRAME_MAX",
    "FRAME_END",
    "FRAME_MIN_SIZE",
    "FRAME_OVERHEAD",
    "OBJECT_ARGUMENTS",
    "PROPERTIES",
    "PROTOCOL_HEADER",
    "SHAPES",
    "AmqpError",
    "Decimal",
    "Decoder",
    "Float",
    "FrameType",
    "Heartbeat",
    "Integer",
    "Limits",
    "Method",
    "MethodSpec",
    "Operation",
    "ProtocolHeader",
    "Raw",
    "Sender",
    "SentBy",
    "Table",
    "Timestamp",
    "content_frames",
    "decode_entries",
    "decode_properties",
    "encode_entries",
    "encode_properties",
    "encode_table",
    "frame",
    "header_payload",
]
