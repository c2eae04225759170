"""The command ``plumbline``: mounts one sub-command per package.

A package is imported when one of its commands is asked for: a broker starts in a blink, without the suite.
What a package is handed of the others is in ``plumbline_parts``.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import typer

from plumbline.cli.exits import CommandGroup

if TYPE_CHECKING:
    from plumbline.reports.matrix.batch import Wanted


def _mounted(*registers: Callable[[typer.Typer], None]) -> typer.Typer:
    mounted = typer.Typer(rich_markup_mode=None)
    for register in registers:
        register(mounted)
    return mounted


def _conformance() -> typer.Typer:
    import plumbline.cli.commands.browse
    import plumbline.cli.commands.explore
    import plumbline.cli.commands.verify
    from plumbline.cli.start_target import Parts

    verify, explore = plumbline.cli.commands.verify.register, plumbline.cli.commands.explore.register
    return _mounted(
        lambda mounted: verify(mounted, Parts()),
        lambda mounted: explore(mounted, Parts()),
        plumbline.cli.commands.browse.register,
    )


def _reference_broker() -> typer.Typer:
    import plumbline.cli.commands.broker

    return _mounted(lambda mounted: mounted.add_typer(plumbline.cli.commands.broker.app, name="broker"))


def _gate() -> typer.Typer:
    import plumbline.cli.commands.gate
    import plumbline.cli.commands.observe
    from plumbline.cli.watched_brokers import Stands

    gate, observe = plumbline.cli.commands.gate.register, plumbline.cli.commands.observe.register
    return _mounted(lambda mounted: gate(mounted, Stands()), lambda mounted: observe(mounted, Stands()))


def _proxy() -> typer.Typer:
    from plumbline.cli.commands import diff, mitm_addon, record, replay, show, trace

    mounted = typer.Typer(rich_markup_mode=None)
    mounted.command(epilog=record.EPILOG)(record.record)
    mounted.command(epilog=show.EPILOG)(show.show)
    mounted.command(epilog=trace.EPILOG)(trace.trace)
    mounted.command(epilog=diff.EPILOG)(diff.diff)
    mounted.command(epilog=replay.EPILOG)(replay.replay)
    mounted.command(epilog=mitm_addon.EPILOG)(mitm_addon.mitm_addon)
    return mounted


def _audit() -> typer.Typer:
    import plumbline.cli.commands.audit

    return _mounted(plumbline.cli.commands.audit.register)


def _judge() -> typer.Typer:
    import plumbline.cli.commands.judge

    return _mounted(plumbline.cli.commands.judge.register)


def _reports() -> typer.Typer:
    import plumbline.cli.commands.report
    from plumbline.cli.check_capture import capture
    from plumbline.interrupts import terminated_as_interrupted

    return _mounted(
        lambda mounted: plumbline.cli.commands.report.register(
            mounted, _every_target, capture, terminated_as_interrupted
        )
    )


def _every_target(names: Sequence[str]) -> list[Wanted]:
    """What ``ci`` says that verifies each target, as ``reports`` wants it."""
    from plumbline.reports.matrix.batch import Wanted
    from plumbline.servers import every

    return [Wanted(name, arguments) for name, arguments in every.runs(names)]


def _ci() -> typer.Typer:
    import plumbline.cli.commands.targets

    return plumbline.cli.commands.targets.app


# What is listed, in this order, and who has it.
COMMANDS: dict[str, Callable[[], typer.Typer]] = {
    "verify": _conformance,
    "gate": _gate,
    "observe": _gate,
    "explore": _conformance,
    "list": _conformance,
    "explain": _conformance,
    "variants": _conformance,
    "report": _reports,
    "matrix": _reports,
    "targets": _ci,
    "broker": _reference_broker,
    "record": _proxy,
    "show": _proxy,
    "trace": _proxy,
    "diff": _proxy,
    "replay": _proxy,
    "mitm-addon": _proxy,
    "judge": _judge,
    "audit": _audit,
}


class Commands(CommandGroup):
    """The commands, each imported when it is needed."""

    def list_commands(self, ctx: Any) -> list[str]:
        for mount in dict.fromkeys(COMMANDS.values()):
            self._mount(mount)
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands and cmd_name in COMMANDS:
            self._mount(COMMANDS[cmd_name])
        if cmd_name not in COMMANDS:
            self.list_commands(ctx)  # for the suggestions
        return self.commands.get(cmd_name)

    def _mount(self, mount: Callable[[], typer.Typer]) -> None:
        self.commands.update(typer.main.get_group(mount()).commands)


app = typer.Typer(
    name="plumbline",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # which would eat the brackets of URLs and the line ends of examples
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(help="Holds a message broker up against its protocol: NATS, JetStream, AMQP 0-9-1.")
def _plumbline() -> None:
    """Make a group of it though its commands come later."""


def main() -> None:
    """The entry point of the console script. Once the command has ended, Ctrl-C does nothing: it would find
    Python on its way out, which prints a traceback then."""
    try:
        app(prog_name="plumbline")  # also as python -m plumbline
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    main()
