"""The command line: click commands, one module a command or group of them, imported only when they are
called.

The only place, with ``rocm_wheels.api``, that reads ``os.environ``; it alone prints results and sets exit
codes. ``main`` names every command, ``lazy`` imports one when it is called, ``boundary`` turns errors into
messages and exit codes. A command reads its options (``options`` and ``*_options`` hold those that several
share), asks a package for the work, and hands what came of it to ``output``: lines for people, or JSON.
"""
