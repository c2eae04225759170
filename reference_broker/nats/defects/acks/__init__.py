"""Defects of acknowledgements."""
