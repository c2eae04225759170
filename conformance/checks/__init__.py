"""Checks that are functions. Those that are transcripts are in traces."""
