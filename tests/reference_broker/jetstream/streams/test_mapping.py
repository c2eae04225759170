"""The functions of subject mappings, on the examples of docs.nats.io, "Subject Mapping and Transforms"."""

from __future__ import annotations

import pytest

from plumbline.reference_broker.nats.jetstream.streams.mapping import mapping, mapping_problem


@pytest.mark.parametrize(
    ("source", "destination", "subject", "mapped"),
    [
        ("*", "{{split(1,-)}}", "foo-bar", "foo.bar"),
        ("*", "{{split(1,-)}}", "-foo--bar-", "foo.bar"),
        ("*", "{{SplitFromLeft(1,4)}}", "1234567", "1234.567"),
        ("*", "{{splitfromleft(1,4)}}", "1234", "1234"),
        ("*", "{{splitfromright(1,4)}}", "1234567", "123.4567"),
        ("*", "{{slicefromleft(1,2)}}", "1234567", "12.34.56.7"),
        ("*", "{{slicefromright(1,2)}}", "1234567", "1.23.45.67"),
        ("*", "{{slicefromright(1,2)}}", "123456", "12.34.56"),
        ("foo.*.*", "foo.{{wildcard(1)}}.{{wildcard(2)}}.{{ partition(10, 1, 2) }}", "foo.2.b", "foo.2.b.9"),
        (">", "baz.>", "bar.a.b", "baz.bar.a.b"),
        ("bar.*.*", "baz.$2.{{wildcard(1)}}", "bar.a.b", "baz.b.a"),
    ],
)
def test_a_subject_is_mapped(source: str, destination: str, subject: str, mapped: str) -> None:
    assert mapping_problem(source, destination) == ""
    assert mapping(source, destination)(subject.encode()) == mapped.encode()


@pytest.mark.parametrize(
    ("destination", "problem"),
    [
        ("{{split(1)}}", "function argument is invalid or missing"),
        ("{{split(1,)}}", "function argument is invalid or missing"),
        ("{{partition(3)}}", "function argument is invalid or missing"),
        ("{{slicefromleft(1,0)}}", "function argument is invalid or missing"),
        ("{{partition(3,2)}}", "wildcard index out of range"),
        ("{{split(2,-)}}", "wildcard index out of range"),
        ("$2", "wildcard index out of range"),
        ("{{nonsense(1)}}", "unknown function"),
    ],
)
def test_a_wrong_destination_is_named(destination: str, problem: str) -> None:
    assert mapping_problem("*", destination) == f"invalid mapping destination: {problem} in {destination}"
