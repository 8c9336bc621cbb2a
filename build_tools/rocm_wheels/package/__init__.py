"""Change finished wheels: stamp and repair variants, and write into a wheel what it was built from.

``plan_stamps`` decides a ``VariantStamp`` for every wheel of a release, ``write_stamps`` writes the wheels;
``embed_provenance`` puts its part of the lock
into a wheel; ``verify_provenance`` compares a wheel with the statement beside it; ``plan_final_wheels`` gives
release candidates their final versions. The formats of variants are
in ``variants/``, the rewriting of wheels in ``wheels/``.
"""
