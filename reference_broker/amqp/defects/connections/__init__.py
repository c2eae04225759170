"""Defects of connections and channels: how they begin and end, who may do what, what settings limit."""
