"""JetStream file storage without I/O: what is to be written, as data, and how to read it back.

``layout`` names the files, ``records`` and ``consumer_log`` are their bytes, ``store`` and ``consumer_log``
say what changes, ``reference_broker.write_queue`` collects it until the shell (``reference_broker.durable``)
has written it, ``recovery`` builds streams from what is there.
"""
