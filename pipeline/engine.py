"""Which engine judges: this process, or Spark. The choice, and the sentence that explains it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from plumbline import bounds
from plumbline.errors import UsageProblem
from plumbline.pipeline.input.files import COMPRESSED, capture_files
from plumbline.pipeline.spark.storage import is_remote

EXPANSION = 5  # of a compressed capture, about


class Engine(StrEnum):
    """Who judges. ``AUTO``: by what is asked for and by the size of the captures."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


class EngineChoice(Struct, frozen=True):
    """``engine`` is ``LOCAL`` or ``SPARK``; ``bytes`` of the captures as they are stored, 0 if not known."""

    engine: Engine
    reason: str
    bytes: int = 0

    def __str__(self) -> str:
        return f"engine: {self.engine}, {self.reason}"


def choose_engine(
    asked: Engine, places: Sequence[str], output: str, *, master: str | None, follow: bool, settings: bool
) -> EngineChoice:
    """Raises ``UsageProblem`` if ``asked`` cannot do it, ``CaptureError`` for a place that does not exist.

    ``master`` and ``settings``: what is asked of Spark.
    """
    needs_spark = _spark_needed(places, output, master=master, follow=follow, settings=settings)
    if any(map(is_remote, places)):
        stored = size = 0
    else:
        stored, size = _sizes(places)
    if asked is Engine.LOCAL:
        if needs_spark:
            raise UsageProblem(f"--engine local judges local files in one process: {needs_spark} needs Spark")
        return EngineChoice(Engine.LOCAL, f"{megabytes(stored)} in one process", stored)
    if asked is Engine.SPARK or needs_spark:
        return EngineChoice(Engine.SPARK, f"{needs_spark or '--engine spark'} was given", stored)
    if size > bounds.LOCAL_JUDGE_BYTES:
        most = megabytes(bounds.LOCAL_JUDGE_BYTES)
        why = f"{megabytes(size)} of captures are more than {most} (see --engine local)"
        return EngineChoice(Engine.SPARK, why, stored)
    return EngineChoice(Engine.LOCAL, f"{megabytes(stored)} in one process", stored)


def _spark_needed(
    places: Sequence[str], output: str, *, master: str | None, follow: bool, settings: bool
) -> str:
    """The first thing that only Spark does; empty if there is none."""
    remote = next((place for place in (*places, output) if is_remote(place)), "")
    return "--master" if master else "--conf" if settings else "--follow" if follow else remote


def _sizes(places: Sequence[str]) -> tuple[int, int]:
    """Bytes of the captures, as they are stored and about as they are read."""
    paths = [Path(file.path) for file in capture_files(places)[0]]
    sizes = [(path.stat().st_size, EXPANSION if path.suffix in COMPRESSED else 1) for path in paths]
    return sum(size for size, _ in sizes), sum(size * factor for size, factor in sizes)


def megabytes(size: int) -> str:
    """``1.2 MB``."""
    return f"{size / 1e6:.1f} MB" if size < 100e6 else f"{size / 1e6:,.0f} MB"
