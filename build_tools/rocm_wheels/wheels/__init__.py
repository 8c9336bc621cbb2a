"""Read, compare and rewrite finished wheels, as what they are on disk: extents of a zip archive.

``WheelArchive`` is an open wheel: ``zip_format`` reads it strictly, each member is inflated at most
once. ``scan_wheel`` makes one pass that serves every check (digests, RECORD, METADATA, device code, hazards);
``rewrite_wheel`` writes what a ``WheelEdit`` makes of it, copying members that stay byte by byte.
``wheel_code`` says which gfx targets its libraries have kernels for.
"""
