"""Change finished wheels: repair, fat, split, variant stamp, retag, SBOM, provenance.

``plan_stamps`` decides a ``VariantStamp`` for every wheel of a release, ``write_stamps`` writes the wheels;
``plan_restamps`` repairs what was stamped for earlier formats. The formats themselves are in ``variants/``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
