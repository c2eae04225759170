"""What is known of each target and whether it is installed: the rows of ``plumbline targets``."""

from __future__ import annotations

import shlex
from typing import Any

from plumbline.servers.getting import InstallMethod, find_installed, install_methods, version
from plumbline.servers.targets import NamedServer
from plumbline.servers.user_targets import UserTarget


def row_of(known: NamedServer) -> dict[str, Any]:
    """What ``--json`` shows; ``path`` is null where it is not installed. Raises ``TargetError``."""
    path = find_installed(known)
    return {
        "target": known.name,
        "protocol": known.software.protocol,
        "description": known.software.description,
        "version": known.version or (version(known, path) if path else ""),
        "path": str(path) if path else None,
        "ways": [_way(way) for way in install_methods(known)],
    }


def row_of_user(known: UserTarget) -> dict[str, Any]:
    """The same of a server of a user's file, whose version is not known."""
    missing = "" if known.program else f"{known.command.words[0]} is not a program"
    way = {
        "means": "file",
        "command": shlex.join(known.command.words),
        "possible": known.program is not None,
        "missing": missing,
    }
    return {
        "target": known.name,
        "protocol": known.protocol,
        "description": known.description,
        "version": "",
        "path": str(known.program) if known.program else None,
        "ways": [way],
    }


def _way(way: InstallMethod) -> dict[str, Any]:
    return {"means": way.method, "command": way.command, "possible": not way.missing, "missing": way.missing}


def state_of(row: dict[str, Any]) -> str:
    """Installed and where, or the first way to install it that works, or what each way lacks."""
    if row["path"]:
        return f"installed  {row['version']:<8} {row['path']}"
    possible = [way["command"] for way in row["ways"] if way["possible"]]
    if possible:
        return f"available  {possible[0]}"
    return "missing    " + "; ".join(f"{way['command']}: {way['missing']}" for way in row["ways"])
