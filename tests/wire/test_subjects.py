"""Matching, against a matcher so simple that it can be believed."""

from __future__ import annotations

import re
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from plumbline.reference_broker.nats.sublist import Sublist
from plumbline.wire.nats.subjects import collide, covers, is_literal, is_valid

token = st.sampled_from(["a", "b", "ab", "a*", "*", ">", "$", "a>b"])
plain_token = st.sampled_from(["a", "b", "ab", "a*", "$", "a>b"])
pattern = st.lists(token, min_size=1, max_size=4).map(".".join).filter(lambda text: is_valid(text.encode()))
subject = st.lists(plain_token, min_size=1, max_size=4).map(".".join)


def naive_match(pattern: str, subject: str) -> bool:
    """By regular expression: ``*`` is one token, ``>`` is the rest, at least one token of it."""
    parts = [{"*": r"[^.]+", ">": r".+"}.get(part, re.escape(part)) for part in pattern.split(".")]
    return re.fullmatch(r"\.".join(parts), subject) is not None


@given(st.lists(pattern, max_size=12), st.lists(subject, min_size=1, max_size=6), st.data())
def test_sublist_matches_same_as_reference_matching(
    patterns: list[str], subjects: list[str], data: st.DataObject
) -> None:
    sublist: Sublist[int] = Sublist()
    for number, text in enumerate(patterns):
        sublist.insert(text.encode(), number)
    gone = data.draw(st.sets(st.sampled_from(range(len(patterns))))) if patterns else set()
    for number in gone:
        sublist.remove(patterns[number].encode(), number)
    for text in subjects:
        wanted = {
            number for number, one in enumerate(patterns) if number not in gone and naive_match(one, text)
        }
        found = sublist.match(text.encode())
        assert set(found) == wanted
        assert len(found) == len(wanted)


@given(pattern, subject)
def test_covers_agrees_with_the_naive_matcher_on_literals(pattern: str, subject: str) -> None:
    assert covers(pattern.encode(), subject.encode()) == naive_match(pattern, subject)
    assert covers(pattern, subject) == naive_match(pattern, subject)


SMALL = [".".join(tokens) for length in (1, 2, 3, 4) for tokens in product(["a", "b", "c"], repeat=length)]
small_token = st.sampled_from(["a", "b", "*", ">"])
small_pattern = (
    st.lists(small_token, min_size=1, max_size=3).map(".".join).filter(lambda text: is_valid(text.encode()))
)


@given(small_pattern, small_pattern)
def test_covers_and_collide_are_right_for_all_subjects(one: str, other: str) -> None:
    ones = {text for text in SMALL if naive_match(one, text)}
    others = {text for text in SMALL if naive_match(other, text)}
    assert covers(one.encode(), other.encode()) == (others <= ones)
    assert collide(one.encode(), other.encode()) == bool(ones & others)


def test_valid_and_invalid_subjects() -> None:
    assert [
        text for text in ("a", "a.*.b", "a.>", ">", "*", "a.b*", "$SYS.x") if not is_valid(text.encode())
    ] == []
    assert [text for text in ("", ".", "a.", ".a", "a..b", "a.>.b", ">.a") if is_valid(text.encode())] == []
    assert [text for text in ("a.b*", "a>b") if not is_literal(text.encode())] == []
