"""Replay of a capture: as its clients towards a server, or as its server towards clients."""
