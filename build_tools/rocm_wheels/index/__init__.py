"""Read, write and verify static package indexes (PEP 503, 658, 691, 700, 825).

``IndexEntry`` is a file of an index, ``IndexFolder`` the index, or that of a GPU family below it. It has
root pages, ``links.html``, ``<project>/`` pages beside wheels and ``.metadata``, variants files in
``<project>/variants/<digest>/`` (a page that somebody is reading stays true), ``.index/`` for writers.

Writing: ``wheel_file`` → ``update`` → ``pages``, which write sets, channels and views of a store, too.
Reading, here or on a server: ``reader`` → ``verify``, ``resolve_check``. Several as one: ``owners`` →
``federation``.
"""
