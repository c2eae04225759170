"""The arguments and options that more than one command has, each declared once.

``with_report_options`` gives a command one option for each report format that ``reports.formats`` knows.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from plumbline.errors import UsageProblem
from plumbline.wire.units import SECOND, read_duration, read_size

# Which target: verify and explore.
ServerProgram = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="PROGRAM",
        help="Start this server program instead of connecting to a URL: nats-server, or one that reads its "
        "configuration with -c FILE; for verify also rabbitmq-server, qpid-broker-j or garagemq.",
    ),
]
TargetName = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="NAME",
        help="Install and start a real server by name, e.g. nats-server@2.10.14. "
        "'plumbline targets' lists the names.",
    ),
]
TargetsFile = Annotated[
    Path | None,
    typer.Option(
        "--targets-file",
        metavar="FILE",
        help="Read servers of your own from this TOML file: name, start command, ready line. --target takes "
        "their names.",
    ),
]
ProtocolLevel = Annotated[
    str | None,
    typer.Option(
        "--level",
        metavar="VERSION",
        help="Protocol level to check against, e.g. 2.9. Default: the level that the target reports.",
    ),
]
Defects = Annotated[
    list[str] | None,
    typer.Option(
        "--defect",
        metavar="NAME",
        help="Enable a deliberate fault of the embedded broker. 'plumbline broker nats --list-defects' lists "
        "the names. Repeatable.",
    ),
]

# What is run: verify and gate.
Select = Annotated[
    list[str] | None,
    typer.Option(
        "--select",
        metavar="PATTERN",
        help="Run only the requirements or checks that match, e.g. 'JS-PULL-*'. Repeatable.",
    ),
]
Waivers = Annotated[
    Path | None, typer.Option("--waivers", metavar="FILE", help="Read known failures from this TOML file.")
]
MaxTime = Annotated[
    str | None,
    typer.Option(
        "--max-time",
        metavar="TIME",
        help="End the run within this time, e.g. 90s or 1h, clean-up and reports included. The reports list "
        "what was not run; the exit code is 3. Default: 10m; for a slow server up to 30m.",
    ),
]
ServeTls = Annotated[  # gate and record
    bool, typer.Option("--tls", help="Use TLS with clients, with a generated certificate.")
]
Strict = Annotated[bool, typer.Option("--strict", help="Count a failed SHOULD as a failure of the run, too.")]
LONGEST_LIMIT_S = 365 * 86400.0  # more does not fit the timer of every system

# Captures: show, trace, diff, replay, audit, judge; faults and seeds: record, observe, explore.
Captures = Annotated[
    list[Path], typer.Argument(metavar="CAPTURE", help="pcapng or pcap files, or folders with such files.")
]


def _known_protocol(name: str | None) -> str | None:
    if name is not None:
        from plumbline.captures.dialects import known

        if name not in known():
            raise UsageProblem(f"--protocol {name}: known are {', '.join(known())}")
    return name


CaptureProtocol = Annotated[
    str | None,
    typer.Option(
        "--protocol",
        metavar="NAME",
        callback=_known_protocol,
        help="Protocol of the capture, nats or amqp. Needed only if the capture does not name it.",
    ),
]
Filter = Annotated[
    str,
    typer.Option(
        "--filter",
        metavar="FILTER",
        help="Use only matching operations, e.g. 'subject ~ \"ORDERS.*\" and op in (MSG, HMSG)'.",
    ),
]
Follow = Annotated[
    bool, typer.Option("--follow", "-f", help="Continue with what is being recorded, until Ctrl-C.")
]
Connections = Annotated[
    list[int] | None,
    typer.Option(
        "--connection",
        metavar="N",
        help="Use only this connection, by the number that 'plumbline show' prints. Repeatable.",
    ),
]
SparkMaster = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="Spark master: local[4], spark://host:7077 or yarn. Default with Spark: local[*].",
    ),
]
SparkSettings = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="Set a property of Spark. Repeatable."),
]
JsonFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON.")]
Faults = Annotated[
    list[str] | None,
    typer.Option(
        "--fault", metavar="FAULT", help="Inject this fault, e.g. 'latency 50ms ±10ms'. Repeatable."
    ),
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", metavar="N", help="Random seed: the same seed makes the same random choices."),
]


def seconds(text: str, option: str) -> float:
    """A duration, in seconds. Raises ``UsageProblem``."""
    duration = read_duration(text)
    if duration is None:
        raise UsageProblem(f"{option} {text}: expected a number and one of ms, s, m, h, d")
    return duration / SECOND


def time_limit(text: str, option: str) -> float:
    """A duration that is not 0, in seconds. Raises ``UsageProblem``."""
    limit = seconds(text, option)
    if not 0 < limit <= LONGEST_LIMIT_S:
        raise UsageProblem(f"{option} {text}: expected a time, more than 0 and at most 365d, e.g. 60s or 10m")
    return limit


def max_time(text: str | None) -> float | None:
    """``--max-time`` in seconds, if it is given. Raises ``UsageProblem``."""
    return None if text is None else time_limit(text, "--max-time")


def size(text: str, option: str) -> int:
    """A size, in bytes. Raises ``UsageProblem``."""
    count = read_size(text)
    if count is None:
        raise UsageProblem(f"{option} {text}: expected a number and one of k, M, G, KiB, MiB, GiB")
    return count


def output_option(metavar: str, help_text: str) -> Any:
    """``-o``: where a command writes; each writes something else."""
    return typer.Option("--output", "-o", metavar=metavar, help=help_text)


RequirementUrl = Annotated[
    str,
    typer.Option(
        "--requirement-url",
        metavar="URL",
        help="Link requirements in Allure and SARIF to this address, with {group} and {id} in it: "
        "https://.../requirements/{group}.html#{id} for a site of 'plumbline matrix'.",
    ),
]


def with_report_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replaces the parameter ``reports: ReportOptions`` by an option for every report format, and
    ``--requirement-url``. The command gets what was asked for."""
    from plumbline.reports import FORMATS, ReportOptions

    options = [keyword(name, Annotated[Path | None, _format_option(name)]) for name in FORMATS]
    options.append(keyword("requirement_url", RequirementUrl, default=""))

    def asked(requirement_url: str, **paths: Path | None) -> ReportOptions:
        found = {name: path for name, path in paths.items() if path is not None}
        return ReportOptions(found, requirement_url)

    return with_options(command, "reports", options, asked)


def with_options(
    command: Callable[..., None],
    replaced: str,
    options: Sequence[inspect.Parameter],
    asked: Callable[..., Any],
) -> Callable[..., None]:
    """``command`` with ``options`` in place of its parameter ``replaced``, which is what ``asked`` makes of
    their values."""

    @functools.wraps(command)
    def wrapper(**given: Any) -> None:
        values = {option.name: given.pop(option.name) for option in options}
        command(**given, **{replaced: asked(**values)})

    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        if name == replaced:
            parameters += options
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapper


def _format_option(name: str) -> Any:
    from plumbline.reports import FORMATS

    return typer.Option(f"--{name}", metavar=FORMATS[name].metavar, help=FORMATS[name].help)


def keyword(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    """A parameter for an option."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
