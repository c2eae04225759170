"""How Plumbline starts Python: nothing is imported from the working folder of the user.

``python -m`` and ``python -c`` put the working folder first on the import path, and a file of any name may be
there. Imports nothing of Plumbline.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

SAFE_PATH = "PYTHONSAFEPATH"
OURS = "plumbline"  # its value where Plumbline has set it


def python_command(*arguments: str) -> tuple[str, ...]:
    """The command that runs this Python with ``arguments``, such as ``-m`` and a module."""
    return (sys.executable, "-P", *arguments)


def bare_python_command(script: str, *arguments: str) -> tuple[str, ...]:
    """The same for a file that needs the standard library alone: no installed package is looked at."""
    return (sys.executable, "-I", "-S", script, *arguments)


@contextmanager
def safe_path_for_children() -> Iterator[None]:
    """The same for processes of Python that a library starts meanwhile."""
    if SAFE_PATH in os.environ:
        yield
        return
    os.environ[SAFE_PATH] = OURS
    try:
        yield
    finally:
        del os.environ[SAFE_PATH]


def forget_safe_path() -> None:
    """In such a process: what it starts is not concerned. A user's server may import what lies beside it."""
    if os.environ.get(SAFE_PATH) == OURS:
        del os.environ[SAFE_PATH]
