"""Which method is handled when: the table and the parts of the broker fit together."""

from __future__ import annotations

from random import Random

import pytest

from plumbline.reference_broker.amqp.assembly import build
from plumbline.reference_broker.amqp.config import Config
from plumbline.reference_broker.amqp.lifecycle import (
    HANDLE,
    OTHER,
    TABLE,
    ChannelPhase,
    Phase,
    handler_name,
    handlers,
)
from plumbline.wire.amqp import SHAPES


def test_every_phase_has_a_row_and_every_row_an_answer_to_other_methods() -> None:
    assert set(TABLE) == {*Phase, *ChannelPhase}
    assert all(OTHER in row for row in TABLE.values())


def test_the_table_names_methods_of_amqp() -> None:
    named = {method for row in TABLE.values() for method in row}
    assert named - set(SHAPES) == {OTHER, "protocol-header"}


def test_every_handler_of_a_part_is_called_by_the_table() -> None:
    broker = build(Config(), Random(1))
    of_parts = {name for part in vars(broker).values() for name in dir(part) if name.startswith("on_")}
    of_table = {
        handler_name(method) for row in TABLE.values() for method, what in row.items() if what is HANDLE
    }
    assert of_parts == of_table


def test_a_method_without_a_handler_is_an_error_when_the_broker_is_built() -> None:
    with pytest.raises(LookupError, match="0 parts of the broker have on_protocol_header"):
        handlers([], lambda subject, method: None, lambda connection, now: None)
