"""An adapter for plumbline gate: replace what says "my library".

For each command of the adapter protocol that the library supports, add a method ``do_...`` (``js.publish`` is
``do_js_publish``) and its feature. ``say(event=...)`` writes an event.
"""

import json
import platform
import sys
from typing import Any

PROTOCOL = "PROTOCOL"
FEATURES: list[str] = []


def say(**line: Any) -> None:
    """Write one line."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


class Adapter:
    """One method for each command; it returns the fields of ``ok``, or raises what the library raises."""

    def do_connect(self, command: dict[str, Any]) -> None:
        """Connect my library to ``command["url"]``."""

    def do_close(self, command: dict[str, Any]) -> None:
        """Close the connection."""


def answer(adapter: Adapter, command: dict[str, Any]) -> dict[str, Any]:
    """``ok`` or ``error``."""
    action = getattr(adapter, "do_" + command["do"].replace(".", "_"), None)
    if action is None:
        return {"error": {"text": "unknown command", "type": "unsupported"}}
    try:
        return {"ok": action(command) or {}}
    except Exception as error:
        return {"error": {"text": str(error), "type": type(error).__name__}}


def main() -> None:
    """Say hello, then answer each command until stdin ends."""
    say(
        hello="plumbline.adapter/1",
        protocol=PROTOCOL,
        library="my library",
        version="0",
        language=f"python {platform.python_version()}",
        features=FEATURES,
    )
    adapter = Adapter()
    for line in sys.stdin:
        command = json.loads(line)
        say(id=command["id"], **answer(adapter, command))


if __name__ == "__main__":
    main()
