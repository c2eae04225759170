"""Options and variables for passwords, which then are in no command line and in no list of processes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from plumbline.cli.embedded_brokers import EMBEDDED_AMQP
from plumbline.errors import UsageProblem
from plumbline.passwords import VARIABLE, Passwords

MAX_PASSWORD_BYTES = 64 * 1024  # a longer first line is no password: the wrong file was named

PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="Read the password for URL, or its token, from the first line of FILE. "
        f"Default: the environment variable {VARIABLE}.",
    ),
]


def given_passwords(url: str | None, file: Path | None) -> Passwords:
    """Those of the environment, and that of ``--password-file``, which has priority.

    Raises ``UsageProblem``, also for a file without a URL."""
    found = Passwords.taken_from(os.environ)
    if file is None:
        return found
    if not url or url == EMBEDDED_AMQP:
        raise UsageProblem("--password-file needs a URL, such as nats://user@host:4222")
    return Passwords(read_password(file, "--password-file"), found.variants)


def read_password(file: Path, option: str) -> str:
    """The first line of a file, without its line end. Raises ``UsageProblem``."""
    try:
        with file.open("rb") as opened:
            line = opened.read(MAX_PASSWORD_BYTES + 1).partition(b"\n")[0].removesuffix(b"\r")
        password = line.decode()
    except OSError as error:
        raise UsageProblem(f"{option} {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageProblem(f"{option} {file}: the file is not UTF-8 text") from None
    if not password or len(line) > MAX_PASSWORD_BYTES:
        raise UsageProblem(f"{option} {file}: the first line must be the password")
    return password
