"""Each operator on a small source; what does not compile, or changes nothing, is no mutant."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.adequacy.mutants import Candidate, Source, mutants_of


def mutants(text: str, **values: Any) -> list[Candidate]:
    return mutants_of(Source("small", Path("small.py"), dedent(text), values))


def changes(text: str, operator: str, **values: Any) -> list[str]:
    """What an operator does to a source, as before -> after."""
    found = [each.mutant for each in mutants(text, **values) if each.mutant.operator == operator]
    return [f"{mutant.before} -> {mutant.after}" for mutant in found]


class Phase(Enum):
    """An enum that a source uses."""

    OPEN = 1
    CLOSED = 2


@pytest.mark.parametrize(
    ("operator", "line", "expected"),
    [
        ("negate", "if a: b()", ["a -> not a"]),
        ("negate", "if not a: b()", ["not a -> a"]),
        ("negate", "c = a in b", ["a in b -> a not in b"]),
        ("drop a branch", "if a: b()", ["a -> False"]),
        ("drop a condition", "if a: b()", ["a -> True"]),
        ("drop a condition", "c = [x for x in a if x]", ["x -> True"]),
        ("drop a branch", "if (c := a): b(c)", ["(c := a) -> (c := a) and False"]),
        ("drop a condition", "if (c := a): b(c)", ["(c := a) -> (c := a) or True"]),
        (
            "drop an operand",
            "d = (c := a) and b",
            ["(c := a) and b -> ((c := a) or True) and b", "(c := a) and b -> (c := a)"],
        ),
        ("off by one", "c = a < b", ["a < b -> a <= b"]),
        ("off by one", "c = a[7:]", ["7 -> 8", "7 -> 6"]),
        ("off by one", "c = a[0]", ["0 -> 1"]),
        ("swap and/or", "c = a and b", ["a and b -> a or b"]),
        ("drop an operand", "c = a and b", ["a and b -> b", "a and b -> a"]),
        ("swap an operator", "c = a + b", ["a + b -> a - b"]),
        ("swap a function", "c = min(a, b)", ["min -> max"]),
        ("swap a function", "c = sorted(a)", ["sorted -> list"]),
        ("swap a constant", "b(True)", ["True -> False"]),
        ("swap a constant", "b('x-expires')", ["'x-expires' -> 'x-expires~'"]),
        ("skip a statement", "a.b = 1", ["a.b = 1 -> pass"]),
        ("skip a statement", "b(a)", ["b(a) -> pass"]),
        ("skip a statement", "raise ValueError", ["raise ValueError -> pass"]),
        ("return None", "return a", ["return a -> return None"]),
        (
            "scale a duration",
            "c = now + a",
            ["a -> a * 2", "a -> a // 2"],
        ),
        ("scale a duration", "b(timeout=a.x)", ["a.x -> a.x * 2", "a.x -> a.x // 2"]),
        ("widen a scope", "c = a[b, now]", ["(b, now) -> (None, now)", "(b, now) -> (b, None)"]),
        ("ignore an argument", "a(b=1)", ["a(b=1) -> a()"]),
    ],
)
def test_an_operator_makes_its_changes(operator: str, line: str, expected: list[str]) -> None:
    source = f"def f(a, b, now, x):\n    {line}\n"
    assert changes(source, operator) == expected


def test_a_case_is_dropped_but_not_the_last() -> None:
    source = """
        def f(a):
            match a:
                case 1: return 2
                case _: return 3
        """
    assert changes(source, "drop a branch") == ["case 1 -> "]


def test_a_function_of_nothing_returns_early() -> None:
    assert changes("def f(a) -> None:\n    a()\n    a()\n", "return early") == [" -> return"]


def test_an_argument_is_ignored_by_its_default_and_by_its_type() -> None:
    source = "def f(a: int, b: bool, c: str | None, d: str = 'x'):\n    return a, b, c, d\n"
    ignored = [" -> a = 0", " -> b = False", " -> b = True", " -> c = None", " -> d = 'x'"]
    assert changes(source, "ignore an argument") == ignored


def test_another_argument_of_the_same_type_is_passed_on() -> None:
    source = "def f(queue: str, exchange: str, now: int):\n    queue.bind(exchange)\n"
    assert "exchange -> queue" in changes(source, "widen a scope")


def test_a_constant_is_swapped_for_one_of_its_type_and_a_member_for_the_next() -> None:
    source = "def f():\n    return REFUSED, NAME, Phase.OPEN\n"
    found = changes(source, "swap a constant", REFUSED=403, MISSING=404, NAME="x", SAME=403, Phase=Phase)
    assert found == ["REFUSED -> MISSING", "Phase.OPEN -> Phase.CLOSED"]


def test_constants_of_modules_and_classes_and_defaults_are_mutated() -> None:
    source = """
        LIMIT = 5
        class A:
            size: int = 7
        def f(wait=9):
            return wait
        """
    assert changes(source, "off by one") == ["5 -> 6", "5 -> 4", "7 -> 8", "7 -> 6", "9 -> 10", "9 -> 8"]


def test_docstrings_annotations_and_representations_are_left_alone() -> None:
    source = '''
        """Text."""
        from typing import Literal
        class A:
            """Text."""
            a: Literal["b"]
            def __repr__(self) -> str:
                return "a"
            def f(self) -> "A":
                """Text."""
        '''
    assert mutants(source) == []


def test_words_of_errors_are_left_alone_where_no_rule_fixes_them() -> None:
    text = "def f():\n    return 'not found', 'x-expires'\n"
    loose = mutants_of(Source("small", Path("small.py"), text, has_fixed_text=False))
    assert [each.mutant.before for each in loose if each.mutant.operator == "swap a constant"] == [
        "'x-expires'"
    ]


def test_what_does_not_compile_is_no_mutant() -> None:
    source = """
        def f(a):
            match a:
                case {"b": 1, "b~": 2}: a()
        """
    # A pattern must not have the same key twice.
    assert changes(source, "swap a constant") == ["'b~' -> 'b~~'"]


def test_what_changes_nothing_is_no_mutant() -> None:
    assert changes("def f(a):\n    if True: a()\n", "drop a condition") == []


def test_two_operators_that_make_the_same_code_make_one_mutant() -> None:
    assert changes("def f(a):\n    if a is None: a()\n", "negate") == ["a is None -> not a is None"]


def test_the_tree_is_whole_again_after_each_mutant() -> None:
    found = mutants("class A:\n    def f(self, a):\n        return a + 1\n")
    codes = [each.function_code().co_code for each in found]
    assert codes == [each.function_code().co_code for each in found]
    assert all(each.function_code().co_qualname == "A.f" for each in found)


BEFORE = """
def f(a):
    if a > 3:
        return 1
    a.go(1)
    a.go(1)
"""

AFTER = '''
"""Other lines."""
LIMIT = 7

def other(a):
    return a > 3

def f(a):
    """With a text."""
    if a   >   3:
        return 1
    a.new()

    a.go( 1 )
    a.go(1)
'''


def test_ids_stay_when_other_lines_change() -> None:
    before = {each.mutant.id: each.mutant for each in mutants(BEFORE)}
    after = {each.mutant.id: each.mutant for each in mutants(AFTER)}
    assert len(before) == len(mutants(BEFORE))
    assert set(before) <= set(after)
    assert all(before[name].line < after[name].line for name in before)


def test_ids_change_with_the_statement() -> None:
    before = {each.mutant.id for each in mutants("def f(a):\n    return a > 3\n")}
    after = {each.mutant.id for each in mutants("def f(a):\n    return a > 4\n")}
    assert not before & after
