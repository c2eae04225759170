"""What a machine needs before Plumbline's tests can run on it, and which real servers there are.

``bootstrap`` makes ``.venv``, ``servers`` finds and starts real servers, ``targets`` names them, ``getting``
and ``install`` get them. These need only the standard library, since they run before anything is installed;
``cli`` shows the named ones and needs what the project installs. None imports another package of ours.
"""
