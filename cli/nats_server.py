"""The program ``plumbline-nats-server``, which starts quicker than a sub-command of ``plumbline``."""

from __future__ import annotations

import sys


def main() -> None:
    """The entry point of the console script."""
    from plumbline.cli.programs import exit_code_of
    from plumbline.reference_broker.nats.drop_in.shell.program import run

    sys.exit(exit_code_of(run))


if __name__ == "__main__":
    main()
