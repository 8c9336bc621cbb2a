"""Choose, install, configure and examine torch on the user's machine.

``TargetHost`` is the machine; ``choose`` asks indexes (``index_pages``) for wheels (``candidates``), ranks
variants (``variant_wheels``), picks kernels (``device_extras``) and returns a ``WheelChoice``, whose code
``kernel_proof`` reads. ``make_plan`` turns that into an ``InstallPlan`` by ``resolve`` over
``package_offers``, and ``install`` carries it out from the ``wheel_cache``. ``installed_packages`` and
``gpu_support`` read what is there; ``configure`` makes variables of it (``settings``), ``doctor`` runs
the ``check_*`` over a ``DoctorSubject``, ``selftest`` runs the quick part of the smoke tests (``testing``).
"""
