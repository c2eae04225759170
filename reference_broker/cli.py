"""``plumbline broker``: starts a reference broker. Parses flags, and nothing else.

The flags are those of the real server, so that scripts and client test suites can use it in its place.
"""

from __future__ import annotations

import asyncio
import errno
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from reference_broker.nats.config import Config, ConfigError
from reference_broker.nats.config_file import ANY_PORT, convert, load
from reference_broker.nats.defects import DefectNotApplicable, UnknownDefect, all_defects
from reference_broker.nats.levels import NEWEST, OLDEST
from reference_broker.nats.server import NatsBroker
from reference_broker.store_folder import StoreError

EXIT_FAILED = 1
EXIT_USAGE = 2
DEFAULT_PORT = 4222

app = typer.Typer(
    name="broker",
    help="Start a reference broker: it behaves as the documents say, or misbehaves in one exact way.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _broker() -> None:
    """Keep ``nats`` a command of its own while it is the only one."""


class GoFlags(TyperCommand):
    """Reads flags as programs written in Go do, too: ``-js``, ``-port 4222``, ``-p=4222``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        known = {option for parameter in self.get_params(ctx) for option in parameter.opts}
        return super().parse_args(ctx, [_respelled(arg, known) for arg in args])


def _respelled(arg: str, known: set[str]) -> str:
    flag, equals, value = arg.partition("=")
    if re.fullmatch(r"-\w", flag) and flag in known and equals:
        return flag + value
    if re.fullmatch(r"-\w[\w-]+", flag) and flag not in known and f"-{flag}" in known:
        return f"-{arg}"
    return arg


def _list_defects(wanted: bool) -> None:
    if not wanted:
        return
    rows = [(one.name, " ".join(one.breaks), one.summary) for one in all_defects()]
    names = max(len(name) for name, _, _ in rows)
    breaks = max(len(requirements) for _, requirements, _ in rows)
    for name, requirements, summary in [("DEFECT", "BREAKS", "WHAT IS WRONG"), *rows]:
        typer.echo(f"{name:{names}}  {requirements:{breaks}}  {summary}")
    raise typer.Exit


_LEVELS = " to ".join(".".join(map(str, level)) for level in (OLDEST, NEWEST))

EXAMPLES = """
Examples:

    plumbline broker nats -js                        port 4222, JetStream in memory

    plumbline broker nats -js -sd DIR                streams in files, which outlive the broker

    plumbline broker nats -p -1 -a 127.0.0.1         any free port; the URL is printed

    plumbline broker nats -c server.json --level 2.9

    plumbline broker nats --defect NAME              what NAME breaks: --list-defects
"""


@app.command(cls=GoFlags, epilog=EXAMPLES)
def nats(
    *,
    addr: Annotated[
        str | None, typer.Option("--addr", "-a", "--net", help="Address to listen on; 127.0.0.1 by default.")
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", "-p", help="Port; 4222 by default, -1 takes a free one.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", "-n", "--server_name", help="Server name in INFO.")
    ] = None,
    jetstream: Annotated[bool, typer.Option("--jetstream", "-js", help="Enable JetStream.")] = False,
    store_dir: Annotated[
        str | None, typer.Option("--store_dir", "-sd", help="Keep streams in files, in this folder.")
    ] = None,
    fsync: Annotated[
        str | None,
        typer.Option(
            "--fsync",
            metavar="always|interval|never",
            help="When what is written is brought to the disk: before it is acknowledged, every two minutes "
            "(the default), or when the operating system likes. Written it is before it is acknowledged.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="nats-server configuration, written as JSON; flags overrule it."),
    ] = None,
    user: Annotated[str | None, typer.Option("--user", help="User that clients must name.")] = None,
    password: Annotated[str | None, typer.Option("--pass", help="Password of that user.")] = None,
    token: Annotated[str | None, typer.Option("--auth", help="Token that clients must show.")] = None,
    level: Annotated[
        str | None, typer.Option("--level", help=f"Behave like servers of that age: {_LEVELS}, or newest.")
    ] = None,
    defect: Annotated[
        list[str] | None, typer.Option("--defect", help="Switch on a deliberate fault; may be given again.")
    ] = None,
    list_defects: Annotated[
        bool,
        typer.Option(
            "--list-defects", is_eager=True, callback=_list_defects, help="Show all defects and leave."
        ),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", "-D", help="Accepted, changes nothing.")] = False,
    trace: Annotated[bool, typer.Option("--trace", "-V", help="Accepted, changes nothing.")] = False,
    debug_trace: Annotated[bool, typer.Option("-DV", help="Accepted, changes nothing.")] = False,
) -> None:
    """Run a NATS server, with JetStream if asked for, until Ctrl-C.

    Prints one line that starts with its URL when clients can connect.
    """
    flags = _given(
        host=addr,
        port=port,
        server_name=name,
        level=level,
        jetstream=True if jetstream or store_dir is not None else None,
        store_dir=store_dir,
        fsync=_policy(fsync),
        authorization=_given(user=user, password=password, token=token) or None,
    )
    try:
        usual = {"port": DEFAULT_PORT}
        settings = convert(usual, flags) if config is None else load(config, under=usual, over=flags)
        broker = NatsBroker(settings, defect=defect)
    except (ConfigError, UnknownDefect, DefectNotApplicable) as error:
        raise _usage(str(error)) from None
    try:
        asyncio.run(_serve(broker, defect or []))
    except StoreError as error:
        raise _usage(str(error)) from None
    except OSError as error:
        raise _usage(_cannot_listen(broker.config, error)) from None


def _policy(fsync: str | None) -> str | None:
    if fsync not in (None, "always", "interval", "never"):
        raise _usage(f"--fsync {fsync}: write always, interval or never")
    return fsync


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _usage(message: str) -> typer.Exit:
    typer.echo(message, err=True)
    return typer.Exit(EXIT_USAGE)


def _cannot_listen(config: Config, error: OSError) -> str:
    address = f"{config.host}:{config.port}"
    if error.errno == errno.EADDRINUSE:
        return f"{address} is in use: choose another port with -p, or -p {ANY_PORT} for a free one"
    return f"cannot listen on {address}: {error.strerror or error}"


async def _serve(broker: NatsBroker, defects: Sequence[str]) -> None:
    """Until SIGINT or SIGTERM."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    async with broker as url:
        for warning in broker.warnings:
            typer.echo(f"warning: {warning}", err=True)
        traits = [f"level {'.'.join(map(str, broker.config.level))}"]
        traits += ["JetStream"] if broker.config.jetstream else []
        traits += [f"defect {name}" for name in defects]
        typer.echo(f"{url} ready ({', '.join(traits)})")
        await _ended_or_failed(ended, broker)


async def _ended_or_failed(ended: asyncio.Event, broker: NatsBroker) -> None:
    """Returns once somebody asks for the end; leaves with 1 if the store cannot be written any more."""
    waiting = asyncio.ensure_future(ended.wait())
    assert broker.failed is not None
    tasks: set[asyncio.Future[Any]] = {waiting, broker.failed}
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if broker.failed.done():
        typer.echo(broker.failed.result(), err=True)
        raise typer.Exit(EXIT_FAILED)
