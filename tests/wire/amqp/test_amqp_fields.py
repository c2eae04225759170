"""Field tables: every type of RabbitMQ's, back with its own bytes; what is malformed is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from plumbline.wire.amqp import (
    SHAPES,
    AmqpError,
    Decimal,
    Float,
    Integer,
    Method,
    Timestamp,
    decode_entries,
    decode_properties,
    encode_entries,
    encode_properties,
)
from plumbline.wire.amqp.fields import decode_value, encode_value
from plumbline.wire.errors import ErrorKind
from tests.wire.amqp.amqp_strategies import properties, tables


@given(tables)
def test_table_round_trip_keeps_bytes(table: dict[str, Any]) -> None:
    data = encode_entries(table)
    found = decode_entries(data)
    assert found == table
    assert encode_entries(found) == data


@given(properties)
def test_properties_come_back_equal_and_with_the_same_bytes(some: dict[str, Any]) -> None:
    data = encode_properties(some)
    assert decode_properties(data) == some
    assert encode_properties(decode_properties(data)) == data


# RabbitMQ, "AMQP 0-9-1 Errata", section 3, column "RabbitMQ".
TYPES: dict[str, tuple[bytes, Any]] = {
    "t": (b"t\x01", True),
    "b": (b"b\xff", Integer(-1, "b")),
    "B": (b"B\xff", Integer(255, "B")),
    "s": (b"s\xff\xfe", Integer(-2, "s")),
    "u": (b"u\xff\xfe", Integer(65534, "u")),
    "I": (b"I\xff\xff\xff\xff", -1),
    "i": (b"i\xff\xff\xff\xff", Integer(2**32 - 1, "i")),
    "l": (b"l\x80" + b"\x00" * 7, -(2**63)),
    "small l": (b"l" + b"\x00" * 7 + b"\x05", Integer(5, "l")),
    "f": (b"f\x3f\x80\x00\x00", Float(1.0)),
    "d": (b"d\x3f\xf0" + b"\x00" * 6, 1.0),
    "D": (b"D\x02\x00\x00\x00\x07", Decimal(2, 7)),
    "S": (b"S\x00\x00\x00\x02\xc3\xa9", "é"),
    "x": (b"x\x00\x00\x00\x01\xff", b"\xff"),
    "A": (b"A\x00\x00\x00\x03t\x00V", [False, None]),
    "T": (b"T" + b"\x00" * 7 + b"\x01", Timestamp(1)),
    "F": (b"F\x00\x00\x00\x03\x01aV", {"a": None}),
    "V": (b"V", None),
}


@pytest.mark.parametrize("name", TYPES)
def test_each_type_is_read_and_written(name: str) -> None:
    data, value = TYPES[name]
    found, end = decode_value(data, 0)
    assert (found, end, type(found)) == (value, len(data), type(value))
    assert encode_value(found) == data
    with pytest.raises(AmqpError):
        decode_value(data[:-1], 0)


def test_an_integer_equals_its_number_and_keeps_its_type() -> None:
    assert Integer(5, "s") == 5
    assert encode_value(Integer(5, "s")) == b"s\x00\x05"
    assert encode_value(5) == b"I\x00\x00\x00\x05"
    assert encode_value(2**40) == b"l" + (2**40).to_bytes(8, "big")


@pytest.mark.parametrize("value", [2**63, Integer(300, "b"), Integer(-1, "u"), object(), Timestamp(-1), 1j])
def test_unencodable_value_is_rejected(value: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        encode_value(value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("priority", 256), ("timestamp", 2**64), ("delivery-mode", -1), ("expiration", "x" * 256)],
)
def test_a_property_that_does_not_fit_is_rejected(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        encode_properties({name: value})


@pytest.mark.parametrize(
    "cut", [b"S", b"S\0\0\0", b"S\0\0\0\x05ab", b"A\0\0", b"I\0", b"D\x02", b"F\0\0\0\x05\x01a"]
)
def test_a_value_that_is_cut_short_is_refused(cut: bytes) -> None:
    with pytest.raises(AmqpError) as caught:
        decode_value(cut, 0)
    assert caught.value.kind is ErrorKind.ARGUMENTS


@pytest.mark.parametrize("cut", [b"", b"\x80", b"\x80\x00", b"\x08\x00", b"\x00\x40\x00\x00"])
def test_properties_that_are_cut_short_are_refused(cut: bytes) -> None:
    with pytest.raises(AmqpError) as caught:
        decode_properties(cut)
    assert caught.value.kind is ErrorKind.PROPERTIES


@pytest.mark.parametrize(("opening", "closing"), [(b"A", b""), (b"F", b"\x01a")])
def test_tables_within_each_other_are_refused_at_the_limit(opening: bytes, closing: bytes) -> None:
    data = b"V"
    for _ in range(500):
        inner = closing + data
        data = opening + len(inner).to_bytes(4, "big") + inner
    with pytest.raises(AmqpError) as caught:
        decode_value(data, 0)
    assert caught.value.kind is ErrorKind.TABLE


def test_names_that_a_method_does_not_have_are_not_written() -> None:
    with pytest.raises(ValueError, match=r"basic\.ack has no argument tag"):
        Method.make("basic.ack", 1, tag=1)
    with pytest.raises(ValueError, match="carries no content"):
        Method.make("basic.ack", 1, body=b"x")
    with pytest.raises(ValueError, match="no property weight"):
        Method.make("basic.publish", 1, properties={"weight": 1})
    with pytest.raises(ValueError, match="255"):
        Method.make("basic.get", 1, queue="x" * 256)
    with pytest.raises(ValueError, match="prefetch_count"):
        Method.make("basic.qos", 1, prefetch_count=65536)


def test_bits_are_packed_from_the_lowest() -> None:
    """AMQP 0-9-1, section 4.2.5.2."""
    assert SHAPES["basic.nack"].encode({"delivery_tag": 1, "requeue": True})[-1] == 0b10
    assert SHAPES["queue.declare"].encode({"durable": True, "no_wait": True})[-5] == 0b10010
