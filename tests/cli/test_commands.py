"""All commands: one style of help, options declared once, report formats taken from their registry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from plumbline.cli.main import COMMANDS, app
from plumbline.reports import FORMATS

SUMMARY_WIDTH = 64  # characters that --help of plumbline shows on a terminal of 80 columns


def commands() -> Iterator[tuple[str, Any]]:
    """Every command and its sub-commands, by name."""
    group: Any = typer.main.get_command(app)
    for name in COMMANDS:
        command = group.get_command(None, name)
        yield name, command
        for sub_name, sub_command in getattr(command, "commands", {}).items():
            yield f"{name} {sub_name}", sub_command


EVERY = dict(commands())


@pytest.mark.parametrize("name", EVERY)
def test_help_is_a_sentence_with_examples(name: str) -> None:
    summary = EVERY[name].help.split("\n\n")[0]
    assert summary.endswith(".")
    assert summary[0].isupper()
    assert len(summary) <= SUMMARY_WIDTH, summary
    assert "Examples:" in EVERY[name].epilog
    assert f"plumbline {name}" in EVERY[name].epilog


@pytest.mark.parametrize("name", EVERY)
def test_every_option_is_described_by_a_sentence(name: str) -> None:
    for parameter in EVERY[name].params:
        text = parameter.help or ""
        assert text.endswith("."), (parameter.name, text)
        assert text[0].isupper() or text.split()[0].rstrip(",").islower(), (parameter.name, text)


@pytest.mark.parametrize("name", ["verify", "gate", "report"])
def test_every_report_format_is_an_option(name: str) -> None:
    options = {option: parameter for parameter in EVERY[name].params for option in parameter.opts}
    for format_name, known in FORMATS.items():
        option = options[f"--{format_name}"]
        assert (option.metavar, option.help) == (known.metavar, known.help)
    assert "--requirement-url" in options


def test_an_option_of_several_commands_has_one_text() -> None:
    """Where the same option means something else in another command, it is named here."""
    differ = {
        "--output",
        "--server",
        "--strict",
        "--claims",
        "--workers",
        "--protocol",
        "--level",
        "--json",
        "--html",
        "--defect",
        "--most",
        "--title",
        "--tls-cert",
    }
    texts: dict[str, set[str]] = {}
    for name, command in EVERY.items():
        if name.startswith("broker"):
            continue  # has the options of the real servers
        for parameter in command.params:
            for option in parameter.opts:
                if option.startswith("--"):
                    texts.setdefault(option, set()).add(parameter.help)
    assert {option for option, several in texts.items() if len(several) > 1} <= differ
