"""What a check is: something executable that verifies requirements. A trace or a pytest function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import Struct

Function = TypeVar("Function", bound=Callable[[Any], None])  # of the session of its protocol

ATTRIBUTE = "plumbline_check"


class Check(Struct, frozen=True):
    """One check. ``where`` is file:line; it holds from protocol level ``since`` on and before ``until``.

    ``alone``: no other check may run beside it, since it shows to them. ``shares``: a word for what it has in
    common with others and takes long; one process runs them all, first. ``is_long``: it takes seconds, or a
    hundred round trips, and begins before others.
    """

    id: str
    title: str
    requirements: tuple[str, ...]
    run: Callable[[Any], None]
    source: str = ""
    where: str = ""
    variant: str | None = None
    since: str | None = None
    until: str | None = None
    alone: bool = False
    shares: str = ""
    is_long: bool = False

    @property
    def protocol(self) -> str:
        """What it speaks: a check speaks the protocol of its requirements."""
        return protocol_of(self.requirements[0])

    @property
    def group(self) -> str:
        """A word for the checks that one process runs, since they share what takes long; empty: none. Those
        of an AMQP variant share its broker."""
        return self.shares or (self.variant or "" if self.protocol == "amqp" else "")

    @property
    def is_trace(self) -> bool:
        return "::" not in self.id


def protocol_of(requirement: str) -> str:
    """The protocol of a requirement, by its id: ``AMQP-ACK-001`` is of ``amqp``, others are of ``nats``."""
    return "amqp" if requirement.startswith("AMQP-") else "nats"


class CheckOptions(Struct, frozen=True):
    """What ``verifies`` writes onto a function."""

    requirements: tuple[str, ...]
    source: str
    variant: str | None
    since: str | None
    until: str | None
    alone: bool
    shares: str
    is_long: bool


def verifies(
    *requirements: str,
    source: str = "",
    variant: str | None = None,
    since: str | None = None,
    until: str | None = None,
    alone: bool = False,
    shares: str = "",
    is_long: bool = False,
) -> Callable[[Function], Function]:
    """Mark a function of one argument, ``session``, as the check of these requirements.

    The first line of its docstring is the title. ``variant`` names the server configuration it needs
    (conformance/targets/variants.toml). ``alone`` keeps every other check of the run away meanwhile: what
    subscribes to everything, for example, is interest in what others expect no responders for. Checks with
    the same word in ``shares`` are run one after the other, first: they share what takes long. After them
    come those that ``is_long`` marks: they take seconds, or a hundred round trips, and no run is to end
    with one.
    """
    if not requirements:
        raise ValueError("a check verifies at least one requirement")

    def mark(function: Function) -> Function:
        options = CheckOptions(requirements, source, variant, since, until, alone, shares, is_long)
        setattr(function, ATTRIBUTE, options)
        return function

    return mark


def check_of(function: Callable[[Any], None]) -> Check | None:
    """The check that a marked function is, or None."""
    marked: CheckOptions | None = getattr(function, ATTRIBUTE, None)
    if marked is None:
        return None
    module = function.__module__.rpartition(".")[2].removeprefix("test_")
    code = function.__code__
    return Check(
        id=f"{module}::{function.__name__.removeprefix('test_')}",
        title=(function.__doc__ or function.__name__).strip().splitlines()[0],
        requirements=marked.requirements,
        run=function,
        source=marked.source,
        where=f"{module_path(function)}:{code.co_firstlineno}",
        variant=marked.variant,
        since=marked.since,
        until=marked.until,
        alone=marked.alone,
        shares=marked.shares,
        is_long=marked.is_long,
    )


def module_path(function: Callable[[Any], None]) -> str:
    """The function's file as it is called in the repository: below the folder ``conformance``."""
    return f"{function.__module__.removeprefix('plumbline.').replace('.', '/')}.py"
