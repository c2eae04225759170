"""The Sphinx extension of the documentation: writes the generated pages, and adds real reports as examples.

``docs._ext.pages`` and ``docs._ext.examples`` make both; they do not import Sphinx.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config

from docs._ext import examples, pages


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_config_value("plumbline_examples", True, "env", bool)
    app.connect("config-inited", _write_pages)
    app.connect("build-finished", _write_examples)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _write_pages(app: Sphinx, _config: Config) -> None:
    pages.write(Path(app.srcdir))


def _write_examples(app: Sphinx, failure: Exception | None) -> None:
    if failure is None and app.builder.format == "html" and app.config.plumbline_examples:
        examples.write(Path(app.outdir))
