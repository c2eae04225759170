"""The adapter of the small client library, whole or with the defect that is named.

plumbline gate -- python -m tests.mutation.clients [DEFECT]
"""

from __future__ import annotations

import sys

from tests.mutation.clients.nats_adapter import Adapter, serve
from tests.mutation.clients.nats_defects import DEFECTS


def main() -> None:
    """Until stdin ends."""
    adapter = Adapter()
    if len(sys.argv) > 1:
        DEFECTS[sys.argv[1]].alter(adapter)
    serve(adapter, "1.0.0")


if __name__ == "__main__":
    main()
