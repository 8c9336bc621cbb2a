"""Device code in files and wheels: which gfx targets a library holds kernels for.

``code_objects`` reads every code object of a file or a wheel, and ``library_targets`` only what a library's
tables say. ``bundles`` are what clang puts into a library, ``kpack`` archives hold code that was moved out of
one, ``target_id`` parses the IDs. Sections of host binaries: ``elf`` and ``binary``, one package up.
"""
