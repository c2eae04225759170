"""``python -m plumbline``: the command line."""

from __future__ import annotations

from plumbline.cli.main import main

if __name__ == "__main__":
    main()
