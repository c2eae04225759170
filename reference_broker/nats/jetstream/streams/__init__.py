"""Streams: configuration, what may enter, what must leave, copies to other streams."""
