"""The page of ``plumbline judge``: ``gather`` asks the tables, ``plots`` draws, ``html`` puts it together."""
