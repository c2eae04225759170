"""Defects of connections: how connections and channels begin and end, who may do what, and what settings limit."""
