"""The Informal Trace Format: values of Quint in Python's types, and bad input as one clear error."""

from __future__ import annotations

from typing import Any

import pytest

from plumbline.conformance.models.catalogue import MODELS
from plumbline.conformance.models.itf import ModelTraceError, plain, states_of
from plumbline.conformance.models.model import ModelScript
from plumbline.conformance.requirements.catalogue import Catalogue


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ({"#bigint": "-12"}, -12),
        ({"#set": [{"#bigint": "1"}, {"#bigint": "2"}]}, [1, 2]),
        ({"#tup": ["a", True]}, ["a", True]),
        ({"#map": [[{"#bigint": "1"}, [{"#bigint": "3"}]]]}, {1: [3]}),
        ({"#meta": {"index": 0}, "name": "ack"}, {"name": "ack"}),
    ],
)
def test_values_are_those_of_python(written: Any, value: Any) -> None:
    assert plain(written) == value


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"states": [1]}',
        b'{"states": [{"command": {"#bigint": "x"}}]}',
        b'{"states": [{"command": 1}]}',
        b'{"states": [{"command": {"#map": [1]}}]}',
        b'{"states": [{"command": {"#map": [[[1], 2]]}}]}',
    ],
)
def test_what_is_no_trace_is_an_error(data: bytes) -> None:
    for model in MODELS.values():
        with pytest.raises(ModelTraceError, match=r"^not a trace of the model: "):
            states_of(data, model.step)


def test_a_script_is_cut_behind_its_group() -> None:
    script = ModelScript(("> a", "in any order", "< b", "< c", "end", "> d"), (0, 1, 1, 1, 1, 2))
    assert script.until(2).lines == ("> a", "in any order", "< b", "< c", "end")
    assert script.until(0).lines == ("> a",)
    assert script.until(5) == script


@pytest.mark.parametrize("name", MODELS)
def test_requirements_of_a_model_are_in_the_catalogue(name: str) -> None:
    model = MODELS[name]
    catalogue = Catalogue.load()
    assert {model.requirement, *model.requirements.values()} <= {one.id for one in catalogue.requirements}
