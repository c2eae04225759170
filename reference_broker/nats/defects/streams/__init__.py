"""Defects of streams: what is published, stored and kept, and which events are published."""
