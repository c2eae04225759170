"""What a machine needs before Plumbline's tests can run on it, and which real servers it has.

``bootstrap`` makes ``.venv``, ``servers`` finds and starts real servers, ``install`` gets them. All three need only the standard
library, since they run before anything is installed, and import nothing of ours.
"""
