"""Fuzzes the programs as users run them: processes, sockets, and an honest client beside the fuzzers."""
