"""What makes the start of the local engine fast."""

from __future__ import annotations

import sys
from typing import Any

from plumbline.errors import PlumblineError

INSTALL = "pip install 'plumbline-mq[judge]'"


class PyArrowNotFoundError(PlumblineError):
    """PyArrow is not installed. The message says how to install it."""


class _NoPandas:
    """Finds that there is no pandas."""

    @staticmethod
    def find_spec(name: str, _: Any = None, __: Any = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def keep_pandas_out() -> None:
    """With its first array PyArrow imports pandas where it is installed: 0.5 s, and nothing here uses it.

    A later conversion to pandas still imports it. Nothing changes where pandas or PySpark is loaded. Raises
    ``PyArrowNotFoundError``.
    """
    try:
        import pyarrow as pa
    except ImportError:
        raise PyArrowNotFoundError(f"judge needs PyArrow, which is not installed: {INSTALL}") from None
    if "pyspark" in sys.modules or "pandas" in sys.modules:
        return
    finder: Any = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(finder)
