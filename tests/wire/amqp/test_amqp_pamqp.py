"""A second witness: pamqp reads what we write, and we read what pamqp writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plumbline.wire.amqp import BY_NUMBERS, PROPERTIES, SHAPES, Decoder, Method, Sender

pytest.importorskip("pamqp", reason="needs pamqp: pip install pamqp")

from pamqp import body, commands, frame, header

RENAMED = {"message_type": "type"}


def heard(raw: bytes) -> list[tuple[int, Any]]:
    """What pamqp makes of the frames in ``raw``."""
    found = []
    while raw:
        size, channel, unit = frame.unmarshal(raw)
        found.append((channel, unit))
        raw = raw[size:]
    return found


def written(units: list[tuple[int, Any]]) -> bytes:
    return b"".join(frame.marshal(unit, channel) for channel, unit in units)


@pytest.mark.parametrize("name", SHAPES)
def test_pamqp_agrees_on_method_arguments(name: str) -> None:
    shape = SHAPES[name]
    theirs: Any = commands.INDEX_MAPPING.get(shape.class_id << 16 | shape.method_id)
    if theirs is None:
        assert name in ("access.request", "access.request-ok")
        return
    wire_name = theirs.name.replace("OK", "Ok")
    class_name, _, method_name = wire_name.partition(".")
    spelled = "".join(f"-{c.lower()}" if c.isupper() else c for c in method_name).lstrip("-")
    assert name == f"{class_name.lower()}.{spelled}"
    types = {argument: getattr(theirs, f"_{argument}") for argument in theirs.attributes()}
    assert list(types.values()) == list(shape.arguments.values())


def test_both_know_the_same_methods() -> None:
    theirs = {(index >> 16, index & 0xFFFF) for index in commands.INDEX_MAPPING}
    assert theirs <= set(BY_NUMBERS)


# pamqp warns of the first and knows neither of the others.
_NOT_THEIRS = ("basic.recover-async", "access.request", "access.request-ok")
# What pamqp takes: it validates names, and reserved arguments must be what they always are.
_words = st.from_regex(r"[A-Za-z0-9_.:-]{0,12}", fullmatch=True)
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "octet": st.integers(0, 255),
    "short": st.integers(0, 2**16 - 1),
    "long": st.integers(0, 2**32 - 1),
    "longlong": st.integers(0, 2**63 - 1),
    "bit": st.booleans(),
    "shortstr": _words,
    "longstr": _words,
    "table": st.dictionaries(
        _words, st.booleans() | _words | st.integers(-(2**31), 2**31 - 1) | st.none(), max_size=3
    ),
}


@st.composite
def common_methods(draw: st.DrawFn) -> Method:
    """Methods that pamqp takes."""
    name = draw(st.sampled_from([name for name in SHAPES if name not in _NOT_THEIRS]))
    shape = SHAPES[name]
    arguments = {
        argument: draw(_VALUES[kind])
        for argument, kind in shape.arguments.items()
        if not argument.startswith("reserved_")
    }
    if not shape.has_content:
        return Method.make(name, 3, **arguments)
    optional = {
        name: _VALUES[kind]
        for name, kind in PROPERTIES.items()
        if kind in _VALUES and name not in ("delivery_mode", "cluster_id")
    }
    properties = draw(
        st.fixed_dictionaries({}, optional=optional | {"delivery_mode": st.sampled_from([1, 2])})
    )
    max_frame = draw(st.sampled_from([20, 4096]))
    body = draw(st.binary(max_size=50))
    return Method.make(name, 3, properties=properties, body=body, max_frame=max_frame, **arguments)


@given(common_methods())
def test_pamqp_decodes_same_message(method: Method) -> None:
    units = heard(method.raw)
    assert {channel for channel, _ in units} == {method.channel}
    first, *content = [unit for _, unit in units]
    found = [getattr(first, name) for name in type(first).attributes()]
    assert found == list(method.arguments.values())
    if not method.shape.has_content:
        assert not content
        return
    head, *parts = content
    assert isinstance(head, header.ContentHeader)
    assert head.body_size == len(method.body)
    theirs = {name: getattr(head.properties, name) for name in type(head.properties).attributes()}
    set_by_them = {
        RENAMED.get(name, name): value for name, value in theirs.items() if value not in (None, "")
    }
    assert set_by_them == {name: value for name, value in (method.properties or {}).items() if value != ""}
    assert b"".join(part.value for part in parts) == method.body


def _given(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Pamqp does not distinguish an empty property from a missing one."""
    return {name: value for name, value in properties.items() if value not in (None, "")}


def test_we_read_what_pamqp_writes() -> None:
    properties = commands.Basic.Properties(
        content_type="text/plain",
        delivery_mode=2,
        headers={"a": [1, True, None], "b": {"c": "d"}, "e": bytearray(b"x"), "f": 1.5},
        message_type="t",
    )
    units = [
        (1, commands.Basic.Publish(exchange="e", routing_key="k", mandatory=True)),
        (1, header.ContentHeader(0, 5, properties)),
        (1, body.ContentBody(b"hello")),
        (2, commands.Queue.Declare(queue="q", durable=True, arguments={"x-max-length": 5, "x-a": "b"})),
        (2, commands.Basic.Nack(7, multiple=True, requeue=False)),
    ]
    publish, declare, nack = Decoder(Sender.SERVER).feed(written(units))
    assert isinstance(publish, Method)
    assert isinstance(declare, Method)
    assert isinstance(nack, Method)
    assert publish.arguments == {
        "reserved_1": 0, "exchange": "e", "routing_key": "k", "mandatory": True, "immediate": False,
    }  # fmt: skip
    assert publish.body == b"hello"
    assert publish.properties is not None
    assert dict(publish.properties) == {
        "content_type": "text/plain",
        "delivery_mode": 2,
        "headers": {"a": [1, True, None], "b": {"c": "d"}, "e": b"x", "f": 1.5},
        "type": "t",
    }
    assert declare.arguments["arguments"] == {"x-max-length": 5, "x-a": "b"}
    assert (declare.arguments["durable"], declare.arguments["exclusive"]) == (True, False)
    assert nack.arguments == {"delivery_tag": 7, "multiple": True, "requeue": False}
