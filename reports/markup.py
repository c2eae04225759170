"""What every page of ours is made with: templates that escape all they put out, and a policy of their own.

Every value that a template puts out passes ``escaped_markup``: escaped, with what has no glyph made visible.
The content security policy of a page allows its own style and script by their hashes and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files

import jinja2
from markupsafe import Markup, escape

from plumbline.reports.html.view import slug
from plumbline.reports.text import elide
from plumbline.visible import LAYOUT, one_line, segments

BRIEF_LIMIT = 200
MAX_TEXT = 10_000  # characters of one value, where a template sets no lower limit
MAX_ATTRIBUTE = 300


@cache
def environment() -> jinja2.Environment:
    """The templates of ``reports/templates``."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("plumbline.reports"),
        autoescape=True,
        finalize=escaped_markup,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    made.filters |= {
        "slug": slug,
        # For attributes and titles, where no markup may stand.
        "plain": lambda text: one_line(elide(text, MAX_ATTRIBUTE)),
        "limit": elide,
        "line": lambda text: text_markup(text, keep=""),  # an operation: its line ends count
        "brief": lambda text: elide(one_line(text), BRIEF_LIMIT),
    }
    return made


def escaped_markup(value: object) -> object:
    """What the template puts out, made safe; markup of our own and numbers pass."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return text_markup(elide(value, MAX_TEXT), LAYOUT)


def text_markup(text: str, keep: str) -> Markup:
    """Text as markup: escaped, and characters without a glyph as escapes that look different."""
    if text.isprintable():
        return escape(text)
    return Markup(
        "".join(
            f'<i class="x">{segment.text}</i>' if segment.hidden else str(escape(segment.text))
            for segment in segments(text, keep=keep)
        )
    )


@cache
def asset(name: str) -> Markup:
    """Our own style or script, put into the page as it is."""
    return Markup(files("plumbline.reports").joinpath("templates", name).read_text("utf-8"))


def style_of(*names: str) -> Markup:
    """The colours of all our pages, and then these styles of ``reports/templates``."""
    return Markup("").join(asset(name) for name in ("colours.css", *names))


def compact(style: str) -> Markup:
    """A style without its comments, the blanks that mean nothing, and the variables that it does not use."""
    text = re.sub(r"\s+", " ", re.sub(r"/\*.*?\*/", "", style, flags=re.DOTALL))
    used = set(re.findall(r"var\((--[a-z-]+)\)", text))
    text = re.sub(r"(--[a-z-]+): [^;{}]*;", lambda found: found[0] if found[1] in used else "", text)
    return Markup(re.sub(r";? ?([{};,]) ?", r"\1", text).strip())


def policy(style: str, script: str) -> Markup:
    """The content security policy of a page with this style and this script, as markup in double quotes."""
    scripts = f"script-src '{_hash(script)}'; " if script else ""
    return Markup(
        f"default-src 'none'; style-src '{_hash(style)}'; {scripts}img-src data:;"
        " base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"sha256-{digest}"
