"""What a bench is asked on its command line."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """Of the bench that was started, whose ``__doc__`` describes it."""
    name = Path(sys.argv[0]).stem
    return argparse.ArgumentParser(
        prog=f"python -m tests.bench.{name}",
        description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def runs_asked(doc: str | None, default: int) -> int:
    """For benches that take nothing but a number."""
    parser = parser_of(doc)
    meaning = f"how often each is measured: {default}"
    parser.add_argument("runs", nargs="?", type=_positive, default=default, metavar="RUNS", help=meaning)
    number: int = parser.parse_args().runs
    return number


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)
