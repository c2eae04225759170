"""``plumbline broker``: starts a reference broker. Parses flags, and nothing else.

The flags are those of the real server, so that scripts and client test suites can use it in its place.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from plumbline.cli.exits import CommandGroup
from plumbline.cli.serving import ANY_PORT, run, show_defects
from plumbline.errors import UsageProblem
from plumbline.reference_broker.nats.levels import NEWEST, OLDEST

NATS_PORT = 4222
AMQP_PORT = 5672

app = typer.Typer(
    cls=CommandGroup,
    name="broker",
    help="Start a reference broker: it behaves as the documents say, or misbehaves in one exact way.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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


def _list_nats_defects(wanted: bool) -> None:
    if wanted:
        from plumbline.reference_broker.nats.defects import all_defects

        show_defects(all_defects())


def _list_amqp_defects(wanted: bool) -> None:
    if wanted:
        from plumbline.reference_broker.amqp.defects import all_defects

        show_defects(all_defects())


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
            "--list-defects", is_eager=True, callback=_list_nats_defects, help="Show all defects and leave."
        ),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", "-D", help="Accepted, changes nothing.")] = False,
    trace: Annotated[bool, typer.Option("--trace", "-V", help="Accepted, changes nothing.")] = False,
    debug_trace: Annotated[bool, typer.Option("-DV", help="Accepted, changes nothing.")] = False,
) -> None:
    """Run a NATS server, with JetStream if asked for, until Ctrl-C.

    Prints one line that starts with its URL when clients can connect.
    """
    from plumbline.reference_broker.nats.config import ConfigError
    from plumbline.reference_broker.nats.config_file import convert, load
    from plumbline.reference_broker.nats.server import NatsBroker

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
    usual = {"port": NATS_PORT}
    settings = convert(usual, flags) if config is None else load(config, under=usual, over=flags)
    if fsync and (settings.jetstream is None or settings.jetstream.store_dir is None):
        raise ConfigError("--fsync: without --store_dir DIR streams are in memory")
    broker = NatsBroker(settings, defect=defect)
    traits = [f"level {'.'.join(map(str, broker.config.level))}"]
    traits += ["JetStream"] if broker.config.jetstream else []
    run(broker, traits + [f"defect {name}" for name in defect or []])


def _policy(fsync: str | None) -> str | None:
    if fsync not in (None, "always", "interval", "never"):
        raise UsageProblem(f"--fsync {fsync}: write always, interval or never")
    return fsync


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


AMQP_EXAMPLES = """
Examples:

    plumbline broker amqp                            port 5672, guest:guest, everything in memory

    plumbline broker amqp -d DIR                     what is durable outlives the broker

    plumbline broker amqp -p -1                      any free port; the URL is printed

    plumbline broker amqp --defect NAME              what NAME breaks: --list-defects
"""


@app.command(cls=GoFlags, epilog=AMQP_EXAMPLES)
def amqp(
    *,
    addr: Annotated[
        str, typer.Option("--addr", "-a", help="Address to listen on; 127.0.0.1 by default.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", "-p", help="Port; 5672 by default, -1 takes a free one.")
    ] = AMQP_PORT,
    data_dir: Annotated[
        str | None, typer.Option("--data-dir", "-d", help="Keep what is durable in this folder.")
    ] = None,
    user: Annotated[str, typer.Option("--user", help="User that may log in.")] = "guest",
    password: Annotated[str, typer.Option("--pass", help="Password of that user.")] = "guest",
    vhost: Annotated[
        list[str] | None, typer.Option("--vhost", help="A virtual host beside /; may be given again.")
    ] = None,
    heartbeat: Annotated[
        int, typer.Option("--heartbeat", min=0, max=65535, help="Seconds proposed; 0 for none.")
    ] = 60,
    confirms: Annotated[
        str,
        typer.Option(
            metavar="SCRIPT",
            help="Confirm in this order, once so many were published: '3: ack 2, nack 1, ack 3'.",
        ),
    ] = "",
    defect: Annotated[
        list[str] | None, typer.Option("--defect", help="Switch on a deliberate fault; may be given again.")
    ] = None,
    list_defects: Annotated[
        bool,
        typer.Option(
            "--list-defects", is_eager=True, callback=_list_amqp_defects, help="Show all defects and leave."
        ),
    ] = False,
) -> None:
    """Run an AMQP 0-9-1 server that behaves as RabbitMQ does, until Ctrl-C.

    Prints one line that starts with its URL when clients can connect.
    """
    from plumbline.reference_broker.amqp.config import Config
    from plumbline.reference_broker.amqp.server import AmqpBroker

    config = Config(
        host=addr,
        port=0 if port == ANY_PORT else port,
        users={user: password},
        vhosts=("/", *(vhost or ())),
        data_dir=data_dir,
        heartbeat=heartbeat,
        confirms=confirms,
    )
    broker = AmqpBroker(config, defect=defect)
    run(broker, [f"defect {name}" for name in defect or []])
