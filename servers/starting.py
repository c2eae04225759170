"""From a software of ``targets.toml`` to the class that starts it."""

from __future__ import annotations

import importlib

from plumbline.servers.process import ServerProcess
from plumbline.servers.targets import Software


def server_class(known: Software) -> type[ServerProcess]:
    """``SERVER`` of the module that ``module`` names, in the folder of the protocol."""
    module = importlib.import_module(f"plumbline.servers.{known.protocol}.{known.module}")
    found: type[ServerProcess] = module.SERVER
    return found
