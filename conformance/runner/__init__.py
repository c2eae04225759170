"""Runs checks under pytest and gives verdict events: prepare, collect, judge, clean up."""
