"""Defects of the store: what a restart brings back."""
