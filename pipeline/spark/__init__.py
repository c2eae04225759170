"""Spark itself: the session, its Java, its file systems."""
