"""The trace language: a check written as a transcript. ``README.md`` beside this file is its page."""
