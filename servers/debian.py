"""Files of a Debian package, without installing it. Standard library only: ``ci/bootstrap.py`` runs it."""

from __future__ import annotations

import subprocess
from pathlib import Path


def debian_package(name: str, folder: Path) -> None:
    """The files of a Debian package, below ``folder/name``; nothing there if it could not be had.

    Nothing is installed and no root is needed: apt fetches one package from the machine's own sources, into
    folders of ours.
    """
    for needed in ("lists/partial", "cache/archives/partial"):
        (folder / needed).mkdir(parents=True)
    apt = ["apt-get", "-qq", "-oDebug::NoLocking=1", "-oAPT::Sandbox::User="]
    apt += [f"-oDir::State::lists={folder / 'lists'}", f"-oDir::Cache={folder / 'cache'}"]
    _quietly(folder, [*apt, "update"])
    _quietly(folder, [*apt, "download", name])
    for package in folder.glob(f"{name}_*.deb"):
        _quietly(folder, ["dpkg-deb", "--extract", package.name, name])


def _quietly(folder: Path, command: list[str]) -> None:
    """Runs a command whose result is looked at, not its words."""
    nothing = subprocess.DEVNULL
    subprocess.run(command, cwd=str(folder), stdin=nothing, stdout=nothing, stderr=nothing, check=False)
