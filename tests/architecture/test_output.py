"""Commands print through ``cli.output``, which masks secrets and makes text of strangers visible."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRINTS = re.compile(r"typer\.echo\(|\bprint\(|sys\.stdout\.write|sys\.stderr\.write|console\.print\(")
# They print the catalogue and names of this repository, and a trace, which its writer makes visible.
OWN_TEXT = {"explain.py", "list.py", "mitm_addon.py", "targets.py", "trace.py", "variants.py"}


def test_commands_print_through_one_module() -> None:
    modules = [path for path in (ROOT / "cli").rglob("*.py") if path.name not in OWN_TEXT]
    printing = {path.name for path in modules if PRINTS.search(path.read_text(encoding="utf-8"))}
    assert printing == {"output.py"}
