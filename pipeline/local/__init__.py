"""The local engine: captures are judged in the calling process, with PyArrow and without Spark."""
