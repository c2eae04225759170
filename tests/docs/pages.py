"""Reads the Markdown of README.md and docs/: fenced blocks, the marks before them, and links.

A mark is an HTML comment in front of a block. It says how the block is run:

    <!-- not-run: REASON -->    it is not run, because what it needs is absent here
    <!-- exit: 1 -->            its last command ends with this exit code; 0 without the mark
    <!-- background -->         its command keeps running; it is ready when it has printed its first line
    <!-- file: NAME -->         it is written to this file
    <!-- interrupt: WORD -->    Ctrl-C for the background command with this word in it
    <!-- slow: REASON -->       anywhere: the page takes long, so its test has the marker ``slow``
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token
from msgspec import Struct

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
RUN = "console"
SHOWN = frozenset({"text", "toml", "yaml", "json", "xml", "sql"})  # are for reading, so they need no mark
MARKS = frozenset({"not-run", "exit", "background", "file", "interrupt", "slow"})

_COMMENT = re.compile(r"<!--\s*([a-z-]+)(?:\s*:\s*(.*?))?\s*-->", re.DOTALL)


class Block(Struct, frozen=True):
    """A fenced block. ``line`` counts from 1; an ``interrupt`` mark alone is a block without text."""

    language: str
    text: str
    line: int
    marks: dict[str, str]

    @property
    def commands(self) -> list[str]:
        """What stands behind the prompts, continued lines joined."""
        joined = re.sub(r"\\\n(> )?\s*", "", self.text)
        return [line.removeprefix("$ ") for line in joined.splitlines() if line.startswith("$ ")]


class Page(Struct, frozen=True):
    """One Markdown file."""

    path: Path
    blocks: tuple[Block, ...]
    links: tuple[str, ...]
    problems: tuple[str, ...]
    slow: bool

    @property
    def name(self) -> str:
        """Path in the repository."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def runs(self) -> bool:
        """Whether any block of it is to be run."""
        return any(block.language == RUN and "not-run" not in block.marks for block in self.blocks)


@cache
def pages() -> tuple[Page, ...]:
    """README.md, CONTRIBUTING.md and every page of docs/ that a person wrote."""
    generated = (DOCS / "reference" / "commands", DOCS / "reference" / "requirements")
    written = [
        path
        for path in sorted(DOCS.rglob("*.md"))
        if path.parent not in generated and not path.name.startswith("_")
    ]
    return tuple(page(path) for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *written))


def page(path: Path) -> Page:
    """Read one file."""
    tokens = MarkdownIt("commonmark").enable("table").parse(path.read_text(encoding="utf-8"))
    blocks: list[Block] = []
    problems: list[str] = []
    waiting: dict[str, str] = {}
    slow = False
    for token in tokens:
        line = token.map[0] + 1 if token.map else 0
        if token.type == "html_block":
            for mark, value in _COMMENT.findall(token.content):
                if mark not in MARKS:
                    problems.append(f"line {line}: unknown mark {mark!r}")
                elif mark == "slow":
                    slow = True
                elif mark == "interrupt":
                    blocks.append(Block("", "", line, {mark: value}))
                else:
                    waiting[mark] = value
        elif token.type == "fence":
            blocks.append(Block(token.info.strip(), token.content, line, waiting))
            problems += [f"line {line}: {what}" for what in _wrong(blocks[-1])]
            waiting = {}
        elif token.type == "code_block":
            problems.append(f"line {line}: an indented block has no language; use a fenced block")
        elif waiting and token.nesting >= 0 and token.type.endswith("_open"):
            problems.append(f"line {line}: the mark {', '.join(waiting)} is not in front of a block")
            waiting = {}
    return Page(path, tuple(blocks), tuple(_links(tokens)), tuple(problems), slow)


def _wrong(block: Block) -> Iterator[str]:
    """Why a block is neither run, nor marked with a reason, nor of a language that is only shown."""
    if block.language.startswith("{"):
        return  # a directive of MyST
    if "not-run" in block.marks:
        if not block.marks["not-run"]:
            yield "not-run needs a reason"
    elif block.language == RUN:
        if not block.commands:
            yield "a console block has commands, each behind '$ '"
        if "background" in block.marks and len(block.commands) != 1:
            yield "a background block has one command"
    elif block.language not in SHOWN and "file" not in block.marks:
        yield f"a block of {block.language or 'no language'} needs a mark: file or not-run"
    elif re.search(r"^\$ ", block.text, re.MULTILINE):
        yield f"a command in a block of {block.language}; make it a console block"


def _links(tokens: list[Token]) -> Iterator[str]:
    for token in tokens:
        for child in token.children or ():
            target = child.attrs.get("href") or child.attrs.get("src")
            if target:
                yield str(target)
