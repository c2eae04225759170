"""The passwords, tokens and seeds that the tests use, collected from their sources by convention.

A literal is a secret where its place says so: an argument, a field or a constant that is named like one, or
the place behind the user of a URL. A test that writes a secret in such a place needs to do no more.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

from tests.nats_identities import ACCOUNT, OPERATOR, USER, NKey

TESTS = Path(__file__).parents[1]
# NKeys, whose seeds are made of their names.
SEEDED = ((USER, "alone"), (USER, "user"), (OPERATOR, "operator"), (ACCOUNT, "account"), (ACCOUNT, "system"))

FIELD = re.compile(r"(?i)(pass|password|passwd|password_file|token|auth_token|secret|plumbline_password\w*)")
FLAGS = frozenset({"--pass", "--auth"})  # the next argument
CONSTANT = re.compile(r"(.*_)?(PASSWORD|SECRET|TOKEN|SEED)")
IN_TEXT = re.compile(
    r"""(?i)(?<![a-z])(?:pass(?:word|wd)?|token)\\*["']?\s*[:=]\s*\\*["'](?P<value>[^"'\\{}\r\n]+)\\*["']"""
)
IN_URL = re.compile(r"\b[a-z]+://[^\s:@/{}]*:(?P<value>[^\s@{}]+)@")
HINT = re.compile(
    r"(?i)pass|token|secret|seed|--auth|://[^\s:@/{}]*:[^\s@{}/]+@"
)  # a file without it has none

# Too short, or a word that is in texts of every kind: it is not found by its value.
SHORTEST = 6
WORDS = frozenset({"secret", "password", "passwd", "invalid", "streams", "limited", "application"})


@cache
def secrets_of_tests(folder: Path = TESTS) -> dict[str, str]:
    """By value, the file and the line of the first place that has it."""
    found: dict[str, str] = {NKey(*key).seed: "tests/nats_identities.py" for key in SEEDED}
    for path in sorted(folder.rglob("*")):
        if path.suffix not in {".py", ".toml", ".js", ".go", ".conf"} or TESTS / "leaks" in path.parents:
            continue
        for value, line in _in_file(path):
            if value.strip("*"):
                found.setdefault(value, f"{path.relative_to(folder.parent)}:{line}")
    return found


def is_distinctive(secret: str) -> bool:
    """Whether what has this value has it from a test."""
    return len(secret) >= SHORTEST and secret.lower() not in WORDS


def _in_file(path: Path) -> Iterator[tuple[str, int]]:
    text = path.read_text("utf-8")
    if not HINT.search(text):
        return
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            for value in _of_node(node):
                yield value, getattr(node, "lineno", 0)
    else:
        for number, line in enumerate(text.splitlines(), 1):
            for value in _in_text(line):
                yield value, number


def _of_node(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(text)):
            yield from _in_text(text)
        case ast.Constant(value=bytes(data)):
            yield from _in_text(data.decode("utf-8", "replace"))
        case ast.keyword(arg=str(name), value=value) if FIELD.fullmatch(name):
            yield from _text_of(value)
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if CONSTANT.fullmatch(name):
            yield from _text_of(value)
        case ast.Dict(keys=keys, values=values):
            for key, value in zip(keys, values, strict=True):
                if isinstance(key, ast.Constant) and FIELD.fullmatch(str(key.value)):
                    yield from _text_of(value)
        case ast.List(elts=words) | ast.Tuple(elts=words) | ast.Call(args=words):
            for flag, value in pairwise(words):
                if isinstance(flag, ast.Constant) and flag.value in FLAGS:
                    yield from _text_of(value)


def _text_of(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
        yield node.value if isinstance(node.value, str) else node.value.decode("utf-8", "replace")


def _in_text(text: str) -> Iterator[str]:
    for pattern in (IN_TEXT, IN_URL):
        for found in pattern.finditer(text):
            yield unquote(found["value"]) if pattern is IN_URL else found["value"]
