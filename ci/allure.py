"""Allure's own command line: a witness, which makes its report from the results that we write for it.

It comes with npm and needs Java. What is on PATH is used as it is; otherwise it is put into the cache folder.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from plumbline.servers.nats.nats_server import cache_folder

LOCKED = Path(__file__).parent / "npm"  # package.json and package-lock.json, which has the hash
COMMAND = "make servers (needs npm and Java), or: npm install --global allure-commandline"


def folder() -> Path:
    """Where ``ci.install`` puts it."""
    return cache_folder().parent / "allure"


def program() -> Path | None:
    """The command, if it is there and there is a Java to run it."""
    if shutil.which("java") is None:
        return None
    on_path = shutil.which("allure")
    own = folder() / "node_modules" / ".bin" / "allure"
    return Path(on_path) if on_path else own if own.is_file() else None
