"""Defects of what consumers are configured to do, and of how they deliver."""
