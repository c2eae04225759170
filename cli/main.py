"""The command ``plumbline``: its sub-commands are the modules of ``cli.commands``.

A module is imported when its command is needed: a broker starts in a fraction of a second, without the suite.
"""

from __future__ import annotations

import signal
from importlib import import_module
from typing import Any

import typer

from plumbline.cli import LOADED_AT
from plumbline.cli.exits import CommandGroup
from plumbline.errors import ExitCode

# In the order in which --help lists them. The command ``mitm-addon`` is in the module ``mitm_addon``.
COMMANDS = (
    "verify",
    "gate",
    "observe",
    "explore",
    "cluster",
    "list",
    "explain",
    "variants",
    "report",
    "matrix",
    "results",
    "targets",
    "broker",
    "record",
    "show",
    "trace",
    "diff",
    "replay",
    "mitm-addon",
    "judge",
    "judge-history",
    "audit",
)


class Commands(CommandGroup):
    """The commands, each imported when it is needed."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            self.commands.update({name: self._command(name) for name in COMMANDS})  # for the suggestions
            return None
        if cmd_name not in self.commands:
            self.commands[cmd_name] = self._command(cmd_name)
        return self.commands[cmd_name]

    def _command(self, name: str) -> Any:
        module = import_module(f"plumbline.cli.commands.{name.replace('-', '_')}")
        return typer.main.get_command(module.app)


HELP = "Check message brokers and client libraries for protocol conformance: NATS, JetStream, AMQP 0-9-1."
EPILOG = """
Examples:

\b
  plumbline verify nats://127.0.0.1:4222       verify a server
  plumbline gate -- python my_adapter.py       verify a client library
  plumbline broker nats -js                    start a server for your tests
  plumbline record URL --listen 127.0.0.1:4333 record traffic

\b
'plumbline COMMAND --help' shows the options, examples and exit codes of a command.
"""

app = typer.Typer(
    name="plumbline",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # which would eat the brackets of URLs and the line ends of examples
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EPILOG,
)


@app.callback(help=HELP)
def _plumbline() -> None:
    """Make ``app`` a group: its commands are added later."""


def main() -> None:
    """The entry point of the console script. Once the command has ended, Ctrl-C is ignored: Python prints a
    traceback for it while it shuts down."""
    try:
        try:
            app(prog_name="plumbline", obj=LOADED_AT)  # also as python -m plumbline
        finally:
            _ignore_interrupts()
    except KeyboardInterrupt:  # one more, between the end of the command and the line above
        _ignore_interrupts()
        raise SystemExit(ExitCode.INTERRUPTED) from None


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    main()
