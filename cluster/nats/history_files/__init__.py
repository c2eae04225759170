"""Histories of a replicated stream as Parquet files: a run or any program writes them, of any size."""
