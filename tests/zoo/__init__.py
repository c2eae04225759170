"""Deployments of real servers on which the suite must not fail a correct server, and runs on them."""
