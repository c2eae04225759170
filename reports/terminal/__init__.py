"""The terminal: progress during a run, the evidence and the verdict at its end."""
