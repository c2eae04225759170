"""What every command is built on: its typer application, and the class of those that take ``--``.

A module of ``cli.commands`` has one ``app`` with one command (``broker``: one for each protocol).
"""

from __future__ import annotations

import time

import typer
from typer.core import TyperCommand

AFTER_DASHES = "plumbline.cli.after_dashes"  # in the context's meta: the words after --


def command_app(**settings: object) -> typer.Typer:
    """An application for one command."""
    return typer.Typer(
        add_completion=False,
        rich_markup_mode=None,  # which would eat the brackets of URLs and the line ends of examples
        context_settings={"help_option_names": ["-h", "--help"]},
        **settings,  # type: ignore[arg-type]
    )


class PassThroughCommand(TyperCommand):
    """A command that does not parse what follows ``--``: another program gets it."""

    usage = "-- COMMAND..."

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        end = args.index("--") if "--" in args else len(args)
        ctx.meta[AFTER_DASHES] = args[end + 1 :]
        return super().parse_args(ctx, args[:end])

    def collect_usage_pieces(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        return [*super().collect_usage_pieces(ctx), self.usage]


class PytestPassThrough(PassThroughCommand):
    """As above, for arguments of pytest, which may be left out."""

    usage = "[-- PYTEST-ARGUMENT...]"


def after_dashes(context: typer.Context) -> tuple[str, ...]:
    """The words after ``--``."""
    return tuple(context.meta[AFTER_DASHES])


def started_at(context: typer.Context) -> float:
    """The monotonic time at which the command began: if ``main`` runs it, with its process."""
    return context.obj if isinstance(context.obj, float) else time.monotonic()
