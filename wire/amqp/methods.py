"""The methods of AMQP 0-9-1 with RabbitMQ's extensions, as data; and their arguments: bytes <-> values.

One row: class.method ids, name, who sends it, "content" if a content follows, its arguments with their types.
Names are the specification's (``basic.get-ok``), arguments with underscores (``delivery_tag``).
Sources: AMQP 0-9-1 XML; RabbitMQ, "Protocol Extensions" (basic.nack, confirm, exchange.bind,
connection.blocked, connection.update-secret; access.request and connection.secure from the XML's older
classes).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from enum import StrEnum
from itertools import groupby
from typing import Any

from msgspec import Struct

from plumbline.wire.amqp.errors import AmqpError
from plumbline.wire.amqp.fields import (
    MAX_DEPTH,
    decode_long,
    decode_short,
    decode_table,
    encode_long,
    encode_short,
    encode_table,
    text,
)
from plumbline.wire.errors import ErrorKind

_TABLE = """
10.10  connection.start            server          version_major:octet version_minor:octet server_properties:table mechanisms:longstr locales:longstr
10.11  connection.start-ok         client          client_properties:table mechanism:shortstr response:longstr locale:shortstr
10.20  connection.secure           server          challenge:longstr
10.21  connection.secure-ok        client          response:longstr
10.30  connection.tune             server          channel_max:short frame_max:long heartbeat:short
10.31  connection.tune-ok          client          channel_max:short frame_max:long heartbeat:short
10.40  connection.open             client          virtual_host:shortstr reserved_1:shortstr reserved_2:bit
10.41  connection.open-ok          server          reserved_1:shortstr
10.50  connection.close            both            reply_code:short reply_text:shortstr class_id:short method_id:short
10.51  connection.close-ok         both
10.60  connection.blocked          server          reason:shortstr
10.61  connection.unblocked        server
10.70  connection.update-secret    client          new_secret:longstr reason:shortstr
10.71  connection.update-secret-ok server
20.10  channel.open                client          reserved_1:shortstr
20.11  channel.open-ok             server          reserved_1:longstr
20.20  channel.flow                both            active:bit
20.21  channel.flow-ok             both            active:bit
20.40  channel.close               both            reply_code:short reply_text:shortstr class_id:short method_id:short
20.41  channel.close-ok            both
30.10  access.request              client          realm:shortstr exclusive:bit passive:bit active:bit write:bit read:bit
30.11  access.request-ok           server          reserved_1:short
40.10  exchange.declare            client          reserved_1:short exchange:shortstr type:shortstr passive:bit durable:bit auto_delete:bit internal:bit no_wait:bit arguments:table
40.11  exchange.declare-ok         server
40.20  exchange.delete             client          reserved_1:short exchange:shortstr if_unused:bit no_wait:bit
40.21  exchange.delete-ok          server
40.30  exchange.bind               client          reserved_1:short destination:shortstr source:shortstr routing_key:shortstr no_wait:bit arguments:table
40.31  exchange.bind-ok            server
40.40  exchange.unbind             client          reserved_1:short destination:shortstr source:shortstr routing_key:shortstr no_wait:bit arguments:table
40.51  exchange.unbind-ok          server
50.10  queue.declare               client          reserved_1:short queue:shortstr passive:bit durable:bit exclusive:bit auto_delete:bit no_wait:bit arguments:table
50.11  queue.declare-ok            server          queue:shortstr message_count:long consumer_count:long
50.20  queue.bind                  client          reserved_1:short queue:shortstr exchange:shortstr routing_key:shortstr no_wait:bit arguments:table
50.21  queue.bind-ok               server
50.30  queue.purge                 client          reserved_1:short queue:shortstr no_wait:bit
50.31  queue.purge-ok              server          message_count:long
50.40  queue.delete                client          reserved_1:short queue:shortstr if_unused:bit if_empty:bit no_wait:bit
50.41  queue.delete-ok             server          message_count:long
50.50  queue.unbind                client          reserved_1:short queue:shortstr exchange:shortstr routing_key:shortstr arguments:table
50.51  queue.unbind-ok             server
60.10  basic.qos                   client          prefetch_size:long prefetch_count:short global:bit
60.11  basic.qos-ok                server
60.20  basic.consume               client          reserved_1:short queue:shortstr consumer_tag:shortstr no_local:bit no_ack:bit exclusive:bit no_wait:bit arguments:table
60.21  basic.consume-ok            server          consumer_tag:shortstr
60.30  basic.cancel                both            consumer_tag:shortstr no_wait:bit
60.31  basic.cancel-ok             both            consumer_tag:shortstr
60.40  basic.publish               client content  reserved_1:short exchange:shortstr routing_key:shortstr mandatory:bit immediate:bit
60.50  basic.return                server content  reply_code:short reply_text:shortstr exchange:shortstr routing_key:shortstr
60.60  basic.deliver               server content  consumer_tag:shortstr delivery_tag:longlong redelivered:bit exchange:shortstr routing_key:shortstr
60.70  basic.get                   client          reserved_1:short queue:shortstr no_ack:bit
60.71  basic.get-ok                server content  delivery_tag:longlong redelivered:bit exchange:shortstr routing_key:shortstr message_count:long
60.72  basic.get-empty             server          reserved_1:shortstr
60.80  basic.ack                   both            delivery_tag:longlong multiple:bit
60.90  basic.reject                client          delivery_tag:longlong requeue:bit
60.100 basic.recover-async         client          requeue:bit
60.110 basic.recover               client          requeue:bit
60.111 basic.recover-ok            server
60.120 basic.nack                  both            delivery_tag:longlong multiple:bit requeue:bit
85.10  confirm.select              client          no_wait:bit
85.11  confirm.select-ok           server
90.10  tx.select                   client
90.11  tx.select-ok                server
90.20  tx.commit                   client
90.21  tx.commit-ok                server
90.30  tx.rollback                 client
90.31  tx.rollback-ok              server
"""  # noqa: E501 - a table has one row per method


class SentBy(StrEnum):
    """Which peer may send a method."""

    CLIENT = "client"
    SERVER = "server"
    BOTH = "both"


# Arguments whose value is the name of a queue or an exchange.
OBJECT_ARGUMENTS = frozenset({"queue", "exchange", "destination", "source"})
_NUMBERS = {"octet": "B", "short": "H", "long": "I", "longlong": "Q"}
_DEFAULTS: dict[str, Any] = {"bit": False, "shortstr": "", "longstr": "", "table": {}}
_IDS = struct.Struct(">HH")
# One step of reading arguments: the names it fills, and either a struct, or the type of one argument.
_Step = tuple[tuple[str, ...], struct.Struct | None, str]


class MethodSpec(Struct, frozen=True, gc=False, eq=False):
    """What a method is: one row of the table."""

    name: str
    class_id: int
    method_id: int
    sent_by: SentBy
    has_content: bool
    arguments: dict[str, str]  # name -> type, in the order of the wire
    ids: bytes  # the four bytes that begin its frame
    defaults: dict[str, Any]
    steps: tuple[_Step, ...]
    texts: tuple[str, ...]  # the arguments that are short strings

    def __repr__(self) -> str:
        return self.name

    def encode(self, values: Mapping[str, Any]) -> bytes:
        """The payload of its frame; arguments not given are 0, false or empty.

        Raises ``ValueError`` for a value that its type does not hold, and for a name it does not have.
        """
        if unknown := values.keys() - self.arguments.keys():
            raise ValueError(f"{self.name} has no argument {', '.join(sorted(unknown))}")
        return self.encode_values({**self.defaults, **values}.values())

    def encode_values(self, values: Iterable[Any]) -> bytes:
        """The same from all values in the order of the table: the quick way. Raises ``ValueError``."""
        parts = [self.ids]
        all_values = iter(values)
        for names, fixed, kind in self.steps:
            if fixed is not None:
                try:
                    parts.append(fixed.pack(*[next(all_values) for _ in names]))
                except struct.error as error:
                    raise ValueError(f"{self.name} {' '.join(names)}: {error}") from None
            elif kind == "shortstr":
                parts.append(encode_short(next(all_values)))
            elif kind == "bit":
                bits = [next(all_values) for _ in names]
                parts.append(bytes((sum(1 << place for place, bit in enumerate(bits) if bit),)))
            elif kind == "longstr":
                parts.append(encode_long(next(all_values)))
            else:
                parts.append(encode_table(next(all_values)))
        return b"".join(parts)

    def decode(self, payload: bytes, table_depth: int = MAX_DEPTH) -> dict[str, Any]:
        """The arguments in a frame's payload. Raises ``AmqpError`` (``ARGUMENTS``, ``TABLE``).

        Bits that the method has no name for are not looked at.
        """
        values: dict[str, Any] = {}
        at = len(self.ids)
        for names, fixed, kind in self.steps:
            if fixed is not None:
                end = at + fixed.size
                if end > len(payload):
                    raise self._short()
                values.update(zip(names, fixed.unpack_from(payload, at), strict=True))
                at = end
            elif kind == "shortstr":
                values[names[0]], at = decode_short(payload, at)
            elif kind == "bit":
                if at >= len(payload):
                    raise self._short()
                bits = payload[at]
                for name in names:
                    values[name] = bits & 1 == 1
                    bits >>= 1
                at += 1
            elif kind == "longstr":
                string, at = decode_long(payload, at)
                values[names[0]] = text(string)
            else:
                values[names[0]], at = decode_table(payload, at, table_depth)
        if at != len(payload):
            raise AmqpError(ErrorKind.ARGUMENTS, f"{len(payload) - at} bytes behind the last of {self.name}")
        return values

    def _short(self) -> AmqpError:
        return AmqpError(ErrorKind.ARGUMENTS, f"{self.name} ends before its last argument")


def shape_of(payload: bytes) -> MethodSpec:
    """The method whose frame has this payload. Raises ``AmqpError``."""
    shape = _BY_IDS.get(payload[:4])
    if shape is None:
        if len(payload) < len(b"ccmm"):
            raise AmqpError(ErrorKind.ARGUMENTS, "a method frame without class and method")
        class_id, method_id = _IDS.unpack_from(payload)
        message = f"no method {class_id}.{method_id}"
        raise AmqpError(ErrorKind.UNKNOWN_OPERATION, message, class_id=class_id, method_id=method_id)
    return shape


def _shape(row: str) -> MethodSpec:
    numbers, name, sent_by, *rest = row.split()
    has_content = rest[:1] == ["content"]
    arguments: dict[str, str] = {}
    for argument in rest[has_content:]:
        argument_name, _, kind = argument.partition(":")
        arguments[argument_name] = kind
    class_id, method_id = map(int, numbers.split("."))
    return MethodSpec(
        name=name,
        class_id=class_id,
        method_id=method_id,
        sent_by=SentBy(sent_by),
        has_content=has_content,
        arguments=arguments,
        ids=_IDS.pack(class_id, method_id),
        defaults={argument: _DEFAULTS.get(kind, 0) for argument, kind in arguments.items()},
        steps=tuple(_steps(arguments)),
        texts=tuple(argument for argument, kind in arguments.items() if kind == "shortstr"),
    )


def _steps(arguments: dict[str, str]) -> Iterable[_Step]:
    """Numbers that follow each other are one struct, bits that follow each other one octet."""
    kinds = groupby(arguments.items(), key=lambda argument: _group(argument[1]))
    for kind, group in kinds:
        names = tuple(name for name, _ in group)
        if kind == "number":
            form = ">" + "".join(_NUMBERS[arguments[name]] for name in names)
            yield names, struct.Struct(form), kind
        elif kind == "bit":
            yield names, None, kind
        else:
            yield from (((name,), None, kind) for name in names)


def _group(kind: str) -> str:
    return "number" if kind in _NUMBERS else kind


SHAPES: dict[str, MethodSpec] = {
    shape.name: shape for shape in map(_shape, filter(None, map(str.strip, _TABLE.splitlines())))
}
_BY_IDS = {shape.ids: shape for shape in SHAPES.values()}
BY_NUMBERS = {(shape.class_id, shape.method_id): shape for shape in SHAPES.values()}
