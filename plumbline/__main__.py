"""``python -m plumbline``: the command line."""

from __future__ import annotations

import os
import sys


def _leave_working_folder_out() -> None:
    """``python -m`` puts it first on the import path, and a file of any name may be there.

    It stays where it is the folder of this package: a checkout that is not installed.
    """
    own = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120  # pathlib would be imported from there
    if not sys.flags.safe_path and sys.path[0] == os.getcwd() != own:  # noqa: PTH109
        del sys.path[0]


def _main() -> None:
    from plumbline.cli.main import main

    main()


if __name__ == "__main__":
    _leave_working_folder_out()
    _main()
