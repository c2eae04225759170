"""``plumbline broker``: the reference brokers.

The flags are those of the real server, so that scripts and client test suites can use it in its place.
"""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from plumbline.cli.command import command_app
from plumbline.cli.exits import CommandGroup, exit_with
from plumbline.cli.output import conceal, flush, print_error, print_line
from plumbline.cli.passwords import read_password
from plumbline.errors import ExitCode, UsageProblem
from plumbline.masking import Mask
from plumbline.reference_broker.durable import DurableShell
from plumbline.reference_broker.nats.levels import NEWEST, OLDEST
from plumbline.reference_broker.registry import Defect
from plumbline.reference_broker.serving import ANY_PORT, defect_table, serve

NATS_PORT = 4222
AMQP_PORT = 5672

EPILOG = """
A reference broker follows the specification. With --defect it breaks exactly one rule.

\b
Examples:

\b
  plumbline broker nats -js                a NATS server with JetStream, on port 4222
  plumbline broker amqp                    an AMQP 0-9-1 server, on port 5672
  plumbline broker nats --list-defects     the faults that --defect enables
"""

app = command_app(
    cls=CommandGroup,
    name="broker",
    help="Start a reference broker for NATS or AMQP 0-9-1.",
    epilog=EPILOG,
    no_args_is_help=True,
)

DefectNames = Annotated[
    list[str] | None,
    typer.Option(
        "--defect", metavar="NAME", help="Enable a deliberate fault; see --list-defects. Repeatable."
    ),
]
PassFile = Annotated[
    Path | None,
    typer.Option("--pass-file", metavar="FILE", help="Read that password from the first line of FILE."),
]
IN_PROCESS_LIST = "All users of this machine can read it in the list of processes: use --pass-file."
NO_EFFECT = "Accepted for compatibility; has no effect."


class GoFlags(TyperCommand):
    """Reads flags as programs written in Go do, too: ``-js``, ``-port 4222``, ``-p=4222``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        known = {option for parameter in self.get_params(ctx) for option in parameter.opts}
        return super().parse_args(ctx, [_respell_flag(arg, known) for arg in args])


def _respell_flag(arg: str, known: set[str]) -> str:
    flag, equals, value = arg.partition("=")
    if re.fullmatch(r"-\w", flag) and flag in known and equals:
        return flag + value
    if re.fullmatch(r"-\w[\w-]+", flag) and flag not in known and f"-{flag}" in known:
        return f"-{arg}"
    return arg


def _print_defects(defects: Sequence[Defect[Any]]) -> None:
    for line in defect_table(defects):
        print_line(line)
    raise typer.Exit


def _serve(
    broker: DurableShell,
    traits: Sequence[str],
    on_signal: Mapping[signal.Signals, Callable[[], None]] | None = None,
) -> None:
    """Until a signal; exits with 4 if the store cannot be written any more."""
    failure = serve(broker, traits, ready=_print_now, warn=print_error, on_signal=on_signal or {})
    if failure:
        raise typer.Exit(exit_with(ExitCode.HARNESS_ERROR, failure))


def _print_now(line: str) -> None:
    print_line(line)
    flush()


def _list_nats_defects(is_requested: bool) -> None:
    if is_requested:
        from plumbline.reference_broker.nats.defects import all_defects

        _print_defects(all_defects())


def _list_amqp_defects(is_requested: bool) -> None:
    if is_requested:
        from plumbline.reference_broker.amqp.defects import all_defects

        _print_defects(all_defects())


_LEVELS = " to ".join(".".join(map(str, level)) for level in (OLDEST, NEWEST))

EXAMPLES = """
Examples:

\b
  plumbline broker nats -js                        port 4222, JetStream in memory
  plumbline broker nats -js -sd DIR                streams in files, which survive a restart
  plumbline broker nats -p -1 -a 127.0.0.1         any free port; the broker prints its URL
  plumbline broker nats -c server.json --level 2.9
  plumbline broker nats --defect NAME              break one rule; --list-defects has the names
"""


@app.command(cls=GoFlags, epilog=EXAMPLES)
def nats(
    *,
    addr: Annotated[
        str | None,
        typer.Option(
            "--addr", "-a", "--net", metavar="HOST", help="Address to listen on. Default: 127.0.0.1."
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", "-p", metavar="PORT", help="Port to listen on; -1: any free port. Default: 4222."
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", "-n", "--server_name", metavar="NAME", help="Server name in INFO.")
    ] = None,
    jetstream: Annotated[bool, typer.Option("--jetstream", "-js", help="Enable JetStream.")] = False,
    store_dir: Annotated[
        str | None,
        typer.Option("--store_dir", "-sd", metavar="DIR", help="Store streams as files in this folder."),
    ] = None,
    fsync: Annotated[
        str | None,
        typer.Option(
            "--fsync",
            metavar="always|interval|never",
            help="When to fsync. always: before each acknowledgement. interval (default): every two minutes. "
            "never: leave it to the operating system. Data is always written before it is acknowledged.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            metavar="FILE",
            help="Configuration of nats-server, as JSON. Options override it.",
        ),
    ] = None,
    user: Annotated[
        str | None, typer.Option("--user", metavar="NAME", help="User name that clients must send.")
    ] = None,
    password: Annotated[
        str | None,
        typer.Option("--pass", metavar="TEXT", help=f"Password that clients must send. {IN_PROCESS_LIST}"),
    ] = None,
    pass_file: PassFile = None,
    token: Annotated[
        str | None,
        typer.Option(
            "--auth",
            metavar="TOKEN",
            help="Token that clients must send. All users of this machine can read it in the list of "
            "processes: write it to the file of --config as authorization.token.",
        ),
    ] = None,
    level: Annotated[
        str | None,
        typer.Option(
            "--level",
            metavar="VERSION",
            help=f"Behave like nats-server of this version: {_LEVELS}, or newest.",
        ),
    ] = None,
    defect: DefectNames = None,
    list_defects: Annotated[
        bool,
        typer.Option(
            "--list-defects", is_eager=True, callback=_list_nats_defects, help="List all faults and exit."
        ),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", "-D", help=NO_EFFECT)] = False,
    trace: Annotated[bool, typer.Option("--trace", "-V", help=NO_EFFECT)] = False,
    debug_trace: Annotated[bool, typer.Option("-DV", help=NO_EFFECT)] = False,
) -> None:
    """Run a NATS server until Ctrl-C; -js enables JetStream.

    It prints one line that starts with its URL as soon as clients can connect. SIGUSR2 begins lame duck mode.
    """
    from plumbline.reference_broker.nats.config import ConfigError
    from plumbline.reference_broker.nats.config_file import convert, load
    from plumbline.reference_broker.nats.server import NatsBroker

    flags = _given_flags(
        host=addr,
        port=port,
        server_name=name,
        level=level,
        jetstream=True if jetstream or store_dir is not None else None,
        store_dir=store_dir,
        fsync=_policy(fsync),
        authorization=_given_flags(
            user=user, password=_password(password, pass_file, user or ""), token=token
        )
        or None,
    )
    usual = {"port": NATS_PORT}
    settings = convert(usual, flags) if config is None else load(config, defaults=usual, overrides=flags)
    if fsync and (settings.jetstream is None or settings.jetstream.store_dir is None):
        raise ConfigError("--fsync needs --store_dir DIR: without it streams are in memory")
    broker = NatsBroker(settings, defect=defect)
    traits = [f"level {'.'.join(map(str, broker.config.level))}"]
    traits += ["JetStream"] if broker.config.jetstream else []
    leaving: list[asyncio.Task[None]] = []  # a task that nothing refers to may vanish

    def leave() -> None:
        leaving.append(asyncio.ensure_future(broker.leave()))
        leaving[-1].add_done_callback(lambda _: signal.raise_signal(signal.SIGTERM))

    _serve(broker, traits + [f"defect {name}" for name in defect or []], {signal.SIGUSR2: leave})


def _password(given: str | None, file: Path | None, user: str) -> str | None:
    """That of ``--pass`` or ``--pass-file``. Raises ``UsageProblem``."""
    if given is not None and file is not None:
        raise UsageProblem("give only one of --pass and --pass-file")
    password = given if file is None else read_password(file, "--pass-file")
    conceal(Mask.of(password, user=user))
    return password


def _policy(fsync: str | None) -> str | None:
    if fsync not in (None, "always", "interval", "never"):
        raise UsageProblem(f"--fsync {fsync}: write always, interval or never")
    return fsync


def _given_flags(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


AMQP_EXAMPLES = """
Examples:

\b
  plumbline broker amqp                            port 5672, guest:guest, everything in memory
  plumbline broker amqp -d DIR                     durable queues survive a restart
  plumbline broker amqp -p -1                      any free port; the broker prints its URL
  plumbline broker amqp --defect NAME              break one rule; --list-defects has the names
"""


@app.command(cls=GoFlags, epilog=AMQP_EXAMPLES)
def amqp(
    *,
    addr: Annotated[
        str, typer.Option("--addr", "-a", metavar="HOST", help="Address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", "-p", metavar="PORT", help="Port to listen on; -1: any free port.")
    ] = AMQP_PORT,
    data_dir: Annotated[
        str | None,
        typer.Option(
            "--data-dir", "-d", metavar="DIR", help="Store durable queues and messages in this folder."
        ),
    ] = None,
    settings_file: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            metavar="FILE",
            help="Settings as JSON, as `plumbline variants amqp-settings` prints them; options override "
            "them. SIGUSR1 makes publishers wait, as if memory were short, and SIGUSR2 ends that.",
        ),
    ] = None,
    user: Annotated[
        str | None, typer.Option("--user", metavar="NAME", help="User who may log in. Default: guest.")
    ] = None,
    password: Annotated[
        str | None,
        typer.Option(
            "--pass", metavar="TEXT", help=f"Password of that user. Default: guest. {IN_PROCESS_LIST}"
        ),
    ] = None,
    pass_file: PassFile = None,
    vhost: Annotated[
        list[str] | None,
        typer.Option("--vhost", metavar="NAME", help="Another virtual host besides /. Repeatable."),
    ] = None,
    heartbeat: Annotated[
        int | None,
        typer.Option(
            "--heartbeat",
            min=0,
            max=65535,
            metavar="SECONDS",
            help="Heartbeat interval to propose; 0: none. Default: 60.",
        ),
    ] = None,
    confirms: Annotated[
        str | None,
        typer.Option(
            metavar="SCRIPT",
            help="Order of publisher confirms, e.g. '3: ack 2, nack 1, ack 3' after three messages.",
        ),
    ] = None,
    defect: DefectNames = None,
    list_defects: Annotated[
        bool,
        typer.Option(
            "--list-defects", is_eager=True, callback=_list_amqp_defects, help="List all faults and exit."
        ),
    ] = False,
) -> None:
    """Run an AMQP 0-9-1 server, similar to RabbitMQ, until Ctrl-C.

    It prints one line that starts with its URL as soon as clients can connect.
    """
    from plumbline.reference_broker.amqp.config import DEFAULT_USER, Config, settings_of_file
    from plumbline.reference_broker.amqp.server import AmqpBroker

    name = user or DEFAULT_USER
    secret = _password(password, pass_file, name)
    flags = _given_flags(
        host=addr,
        port=0 if port == ANY_PORT else port,
        users={name: secret or DEFAULT_USER} if user or secret else None,
        vhosts=("/", *vhost) if vhost else None,
        data_dir=data_dir,
        heartbeat=heartbeat,
        confirms=confirms,
    )
    broker = AmqpBroker(Config.of(**{**settings_of_file(settings_file), **flags}), defect=defect)
    reactions = {
        signal.SIGUSR1: lambda: broker.block("low on memory"),
        signal.SIGUSR2: broker.unblock,
    }
    names = [f"defect {one}" for one in defect or []]
    _serve(broker, names, reactions if settings_file is not None else None)
