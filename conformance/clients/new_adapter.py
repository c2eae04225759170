"""Writes a skeleton of an adapter: a program that already speaks the adapter protocol and knows no library.

The skeletons are programs in ``conformance/clients/skeletons``, one folder for each language. In them
``PROTOCOL`` is the place of the protocol's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from plumbline.conformance.clients.protocol import FEATURES
from plumbline.errors import UsageProblem

SKELETONS = Path(__file__).parent / "skeletons"
_PLACE = '"PROTOCOL"'


class Language(Struct, frozen=True):
    """How a skeleton is built and started, in its folder. ``programs`` are what that needs, ``install`` the
    command that installs them on Debian."""

    build: str
    start: str
    programs: tuple[str, ...]
    install: str


LANGUAGES: Mapping[str, Language] = {
    "python": Language("", "python adapter.py", ("python",), "apt-get install python3"),
    "js": Language("", "node adapter.js", ("node",), "apt-get install nodejs"),
    "go": Language("go build -o adapter .", "./adapter", ("go",), "apt-get install golang"),
    "rust": Language(
        "cargo build --quiet",
        "target/debug/adapter",
        ("cargo",),
        "apt-get install cargo, or https://rustup.rs",
    ),
    "java": Language(
        "mvn -q compile",
        "java -cp 'target/classes:target/lib/*' Adapter",
        ("java", "mvn"),
        "apt-get install default-jdk-headless maven",
    ),
    "c": Language("cc -o adapter adapter.c", "./adapter", ("cc",), "apt-get install gcc libc6-dev"),
    "ruby": Language("", "ruby adapter.rb", ("ruby",), "apt-get install ruby"),
    "php": Language("", "php adapter.php", ("php",), "apt-get install php-cli"),
}


def write_adapter(language: str, folder: Path, protocol: str) -> tuple[Path, ...]:
    """Write the skeleton for ``language`` into ``folder``, which is made if needed; the files written.

    Raises ``UsageProblem`` for a language or protocol that is not known, and if a file is there already."""
    if language not in LANGUAGES:
        raise UsageProblem(f"--new {language!r}: write one of {', '.join(LANGUAGES)}")
    if protocol not in FEATURES:
        raise UsageProblem(f"--protocol {protocol!r}: write one of {', '.join(FEATURES)}")
    sources = sorted(path for path in (SKELETONS / language).rglob("*") if path.is_file())
    targets = {folder / source.relative_to(SKELETONS / language): source for source in sources}
    for target in targets:
        if target.exists():
            raise UsageProblem(
                f"{target} exists; name another folder: plumbline gate --new {language} FOLDER"
            )
    for target, source in targets.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        text = source.read_text("utf-8")
        quoted = _PLACE if _PLACE in text else _PLACE.replace('"', "'")
        target.write_text(text.replace(quoted, quoted.replace("PROTOCOL", protocol)), "utf-8")
    return tuple(targets)
