"""Clusters under faults: nodes, relays between them, a workload, faults by a seed, and a judge.

``plan``, ``history`` and ``judging`` do no I/O and read no clock. ``run`` connects them with real nodes.
"""
