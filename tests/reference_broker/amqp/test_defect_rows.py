"""Defects that are rows of TOML."""

from __future__ import annotations

import msgspec
import pytest

from plumbline.reference_broker.amqp.defects.rows import read

HEAD = '[silent]\nbreaks = ["AMQP-QOS-001"]\nsummary = "It is silent."\n'


def test_a_row_is_a_defect() -> None:
    (defect,) = read(HEAD + 'kind = "sent"\nmethods = ["basic.qos-ok"]\ndrop = true')
    assert (defect.name, defect.breaks, defect.summary) == ("silent", ("AMQP-QOS-001",), "It is silent.")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('kind = "sent"\nmethods = ["basic.qos-ok"]\nmethod = "basic.qos"', "unknown field `method`"),
        ('kind = "returned"', "Invalid value 'returned'"),
        ('kind = "received"\nmethod = "basic.qos"', "missing required field `set`"),
    ],
)
def test_a_wrong_row_is_an_error(text: str, error: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=error):
        read(HEAD + text)
