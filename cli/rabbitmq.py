"""The program ``plumbline-rabbitmq``, which starts quicker than a sub-command of ``plumbline``."""

from __future__ import annotations

import sys


def main() -> None:
    """The entry point of the console script."""
    from plumbline.reference_broker.amqp.drop_in.shell.program import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
