"""The Spark session of a command, as its options ask for it; an error if Spark cannot be reached."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from plumbline.errors import PlumblineError, TargetUnreachable, UsageProblem
from plumbline.pipeline.engine import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ChosenEngine = Annotated[
    Engine,
    typer.Option("--engine", help="Judge in this process (local) or with Spark; auto decides by size."),
]


def spark_settings(words: Sequence[str] | None) -> dict[str, str]:
    """The properties of ``--conf``. Raises ``UsageProblem``."""
    return dict(map(_setting, words or ()))


@contextmanager
def opened_session(
    master: str | None, settings: Mapping[str, str], *, computes: bool = False
) -> Iterator[SparkSession]:
    """See ``pipeline.spark.session``. Raises ``PlumblineError``."""
    from plumbline.pipeline.spark.session import LOCAL, session

    place = master or LOCAL
    try:
        spark = session(place, settings, computes=computes)
    except PlumblineError:
        raise
    except Exception as error:  # whatever Spark raises where there is no master
        raise TargetUnreachable(f"Spark cannot be reached at {place}: {error}") from None
    try:
        yield spark
    finally:
        spark.stop()


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageProblem(f"--conf {text}: write name=value")
    return name, value
