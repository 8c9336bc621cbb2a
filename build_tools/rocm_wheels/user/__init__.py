"""Choose, install, configure and examine torch on the user's machine.

``TargetHost`` is the machine; ``choose`` matches the wheels of an index with its GPUs (``candidates``,
``match``) and returns a ``WheelChoice``. ``make_plan`` turns that into an ``InstallPlan`` by ``resolve`` over
``package_offers``, and ``install`` carries it out from the ``wheel_cache``. ``installed_packages`` and
``gpu_support`` read what is there; ``configure`` makes variables of it (``settings``), ``doctor`` runs
the ``check_*`` over a ``DoctorSubject``, ``selftest`` runs the quick part of the smoke tests (``testing``).
"""
