"""How the drop-in programs end: as the server does, except for an error of Plumbline."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence


def exit_code_of(run: Callable[[Sequence[str]], int]) -> int:
    """The exit code of ``run``, which is given the command line. An unexpected error is one sentence, which
    names the file with the traceback, and exit code 4, as with every command."""
    try:
        return run(sys.argv[1:])
    except Exception as error:
        from plumbline.cli.exits import unexpected  # takes time to load

        return unexpected(error)
