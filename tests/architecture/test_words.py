"""Plain words: the old dialect of the project does not come back (docs/glossary.md, "Words to avoid")."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = (
    "*.py",
    "*.md",
    "*.toml",
    "*.trace",
    "*.j2",
    "*.js",
    "*.rs",
    "*.java",
    "*.go",
    "*.rb",
    "*.cs",
    "*.c",
    "*.sh",
)
# Names of checks and defects have hyphens and underscores: they are stable, and stay.
DIALECT = re.compile(r"(?<![\w-])(?:told|said|held up against|what came of|nobody)(?![\w-])", re.IGNORECASE)
# They name those words, or are of earlier releases.
EXCEPTIONS = {"docs/glossary.md", "CHANGELOG.md", "tests/architecture/test_words.py"}


def tracked() -> list[str]:
    listed = subprocess.run(("git", "ls-files", "-z", *FILES), cwd=ROOT, capture_output=True, check=True)
    return [name for name in listed.stdout.decode().split("\0") if name and name not in EXCEPTIONS]


def test_nothing_is_written_in_the_old_dialect() -> None:
    found = [
        f"{name}:{number}: {line.strip()[:100]}"
        for name in tracked()
        for number, line in enumerate((ROOT / name).read_text("utf-8", "replace").splitlines(), 1)
        if DIALECT.search(line)
    ]
    assert found == []
