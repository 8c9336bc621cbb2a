"""Make wheels of finished wheels, and write into a wheel what it was built from.

A plan (``wheel_plan.WheelPlan``) says what becomes of a wheel before anything is written: ``prune`` keeps the
device code of some targets, ``fat`` puts ROCm in, ``split`` takes device code out, ``join`` puts it back,
``repair`` makes wheels fit for other machines, ``variant_stamp`` makes variants, ``finalize`` gives release
candidates their final versions. ``sbom`` puts its part of the lock into a wheel, ``provenance`` compares a
wheel with the statement beside it. The formats of variants are in ``variants/``, the rewriting of wheels is
in ``wheels/``.
"""
