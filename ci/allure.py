"""Allure's own command line: a witness, which makes its report from the results that we write for it.

It comes with npm and needs Java. What is on PATH is used as it is; otherwise it is put into the cache folder.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from plumbline.servers.npm import npm_program

COMMAND = "make servers (needs npm and Java), or: npm install --global allure-commandline"


def program() -> Path | None:
    """The command, if it is there and there is a Java to run it."""
    return None if shutil.which("java") is None else npm_program("allure")
