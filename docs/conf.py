"""Configuration of the documentation site (Sphinx, MyST-Parser, furo). ``make docs`` builds it."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

project = "Plumbline"
author = "The Plumbline contributors"
release = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]

extensions = ["myst_parser", "docs._ext.plumbline_docs"]
exclude_patterns = ["**/_*.md"]  # fragments that other pages include
html_theme = "furo"
html_title = f"Plumbline {release}"
html_copy_source = False

highlight_language = "none"  # a block without a language is plain text
myst_heading_anchors = 3
myst_enable_extensions = ["deflist"]
suppress_warnings = [
    "misc.highlighting_failure",  # console blocks hold output of any shape
]
