"""Tests of client libraries: adapter processes, scenarios, requirements `CLIENT-*`."""
