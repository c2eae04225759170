"""Defects of pull requests."""
