"""Decoding and judging: flows and streams to operations, facts and violations."""
