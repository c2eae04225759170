"""Do new commits follow the rule of ``CONTRIBUTING.md``? ``make lint`` runs it.
lint`` runs.

A subject is imperative ("Add", not "Added" or "Adds"), has at most 72 characters and no full stop, and starts
with a capital letter; a line without text separates it from the body. Commits before this file was added are
not judged.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LONGEST_SUBJECT = 72
# "Adds", "Added", "Adding": the other forms of a verb. Some imperatives end alike.
OTHER_FORM = re.compile(r"[A-Z][a-z]+(?<!s)(s|ed|ing)\b")
IMPERATIVES = frozenset({"Embed", "Feed", "Focus", "Need", "Proceed", "Speed", "Bring", "String"})


def problems(message: str) -> Iterator[str]:
    """What is wrong with the message of a commit, a sentence each."""
    subject, _, rest = message.partition("\n")
    first = subject.partition(" ")[0].rstrip(":,")
    if len(subject) > LONGEST_SUBJECT:
        yield f"the subject has {len(subject)} characters, {LONGEST_SUBJECT} at most"
    if subject.endswith("."):
        yield "the subject ends with a full stop"
    if not subject[:1].isupper():
        yield "the subject does not start with a capital letter"
    elif OTHER_FORM.fullmatch(first) and first not in IMPERATIVES:
        yield f"the subject is not imperative: {first!r}"
    if rest.strip() and not rest.startswith("\n"):
        yield "no empty line separates the subject from the body"


def messages(root: Path = ROOT) -> dict[str, str]:
    """The commits since this file was added, by short hash; merges have no subject of their own."""
    added = _git(root, "log", "--diff-filter=A", "--format=%H", "--", "ci/commits.py").split()
    if not added:
        return {}
    listed = _git(root, "log", "--no-merges", "--format=%h%x00%B%x01", f"{added[-1]}..HEAD")
    commits = (one.strip("\n").partition("\0") for one in listed.split("\1") if one.strip())
    return {short: message for short, _, message in commits}


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""  # no checkout of git: nothing to judge


def main() -> int:
    """Exit 1 if a commit breaks the rule; one line for each problem."""
    commits = messages()
    found = [f"{short}: {problem}" for short, message in commits.items() for problem in problems(message)]
    for line in found:
        print(line)
    print(f"{len(commits)} commits, {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
