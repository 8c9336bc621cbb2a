"""Read and write the formats of wheel variants (PEP 825, PEP 850): nothing is stamped or chosen here.

``VariantMetadata`` is a ``variant.json`` or ``…-variants.json``; ``Provider`` says who decides what of a
namespace a machine supports. ``document`` reads, checks and joins them, those of 2025 too; ``targets`` turns
device code into values, ``order`` makes labels and ranks variants for a machine; ``device_names`` names
device wheels, the other way to a GPU. ``package/`` stamps wheels with them, ``user/`` chooses by them.
"""
