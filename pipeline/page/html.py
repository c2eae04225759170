"""The page of ``plumbline judge``: one self-contained file, without any JavaScript.

What makes it safe, and how it looks, is that of ``reports``: every value passes its ``markup``.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import jinja2
from markupsafe import Markup

from plumbline.pipeline.page import plots, units
from plumbline.pipeline.page.gather import PageData
from plumbline.reports import markup


def render(view: PageData) -> bytes:
    """The whole page."""
    style = markup.style_of("report.css") + _asset("judged.css")
    document = (
        _environment()
        .get_template("judged.html.j2")
        .render(
            shown=view,
            style=style,
            policy=markup.policy(style, ""),
            violations=plots.violations(view.violations, view.first, view.last, view.width),
            timeline=plots.timeline(view.lanes, view.first, view.last, view.width),
            lags=plots.lags(view.lags),
            repeats=plots.repeats(view.repeats),
        )
    )
    return document.encode()


@cache
def _environment() -> jinja2.Environment:
    made = markup.environment().overlay(loader=jinja2.PackageLoader("plumbline.pipeline"))
    made.filters |= {
        "count": units.count,
        "duration": units.time,
        "clock": lambda at: units.moment(at, 1),
        "day": units.day,
    }
    return made


@cache
def _asset(name: str) -> Markup:
    return Markup(files("plumbline.pipeline").joinpath("templates", name).read_text("utf-8"))
