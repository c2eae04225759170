"""The rule for commit messages, on messages that follow it and on messages that break it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from plumbline.ci.commits import messages, problems


@pytest.mark.parametrize(
    "message",
    [
        "Install RabbitMQ with make servers",
        "BrokerThread: re-raise failures from stop() and advance()",
        "Pass over a newer Python that does not start\n\nIt is a stub of a version manager.",
        "x".upper() * 72,
    ],
)
def test_a_message_that_follows_the_rule(message: str) -> None:
    assert list(problems(message)) == []


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("A" * 73, "73 characters"),
        ("Fixed the parser", "not imperative: 'Fixed'"),
        ("Fixes the parser", "not imperative: 'Fixes'"),
        ("Fixing the parser", "not imperative: 'Fixing'"),
        ("fix the parser", "capital letter"),
        ("Fix the parser.", "full stop"),
        ("Fix the parser\nand more", "no empty line"),
        ("", "capital letter"),
    ],
)
def test_a_message_that_breaks_the_rule(message: str, problem: str) -> None:
    (found,) = problems(message)
    assert problem in found


def test_only_commits_since_the_rule_are_judged(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        author = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *author, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "before the rule.")
    (tmp_path / "ci").mkdir()
    (tmp_path / "ci" / "commits.py").write_text("")
    git("add", ".")
    git("commit", "-q", "-m", "adds the rule.")
    git("commit", "-q", "--allow-empty", "-m", "Keep the rule\n\nBecause.")
    assert [message.strip() for message in messages(tmp_path).values()] == ["Keep the rule\n\nBecause."]
