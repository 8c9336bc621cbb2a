"""Read, compare and rewrite finished wheels, as what they are on disk: extents of a zip archive.

``WheelArchive`` is an open wheel: ``zip_layout`` reads it strictly, each member is inflated at most
once. ``scan_wheel`` makes one pass that serves every check (digests, RECORD, METADATA, device code, hazards);
``rewrite_wheel`` writes what a ``WheelEdit`` makes of it, copying members that stay byte by byte.
``device_code/`` says which gfx targets a library has kernels for.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
