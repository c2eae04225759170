"""What a machine needs before Plumbline's tests can run on it, and which real servers it has.

``bootstrap`` makes ``.venv``, ``servers`` finds and starts real servers, ``install`` gets them. They need
only the standard library, since they run before anything is installed, and import no other package of ours.
"""
