"""Device code in files and wheels: which gfx targets a library holds kernels for.

``code_objects`` reads every code object of a file or a wheel, or only what a library's tables say, and parses
their target IDs. ``bundles`` are what clang puts into a library, ``kpack`` archives hold code that was moved
out of one. Sections of host binaries: ``elf``, one package up.
"""
