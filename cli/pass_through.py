"""Commands that take another command after ``--``: ``gate`` and ``observe``."""

from __future__ import annotations

import typer
from typer.core import TyperCommand

FOLLOWING = "plumbline.conformance.clients.following"  # in the context's meta: the words after --


class BeforeCommand(TyperCommand):
    """Leaves alone what follows ``--``."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        end = args.index("--") if "--" in args else len(args)
        ctx.meta[FOLLOWING] = args[end + 1 :]
        return super().parse_args(ctx, args[:end])

    def collect_usage_pieces(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        return [*super().collect_usage_pieces(ctx), "-- COMMAND..."]
