"""The commands on the pages are run; what cannot be run says why; every command has a page that shows it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs._ext.pages import command_pages
from tests.docs.pages import Page, pages
from tests.docs.playing import play

pytestmark = pytest.mark.slow  # make test-all runs it

PAGES = pages()


def _parameters() -> list[object]:
    """Pages with something to run, the slow ones marked."""
    return [
        pytest.param(page, id=page.name, marks=[pytest.mark.slow] if page.slow else [])
        for page in PAGES
        if page.runs
    ]


@pytest.mark.timeout(900)  # many commands; each has a time limit of its own
@pytest.mark.parametrize("page", _parameters())
def test_commands_of_a_page_end_with_the_exit_code_that_it_states(page: Page, tmp_path: Path) -> None:
    play(page, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_is_run_or_has_a_reason(page: Page) -> None:
    assert page.problems == ()


@pytest.mark.parametrize("command", command_pages())
def test_every_command_is_shown_on_a_page_that_a_person_wrote(command: str) -> None:
    shown = re.compile(rf"\bplumbline {re.escape(command)}\b")
    assert any(shown.search(line) for page in PAGES for block in page.blocks for line in block.commands)
