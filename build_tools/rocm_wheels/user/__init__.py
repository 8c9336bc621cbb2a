"""Choose, install, configure and examine torch on the user's machine.

``TargetHost`` is the machine; ``choose`` asks indexes (``index_pages``) for wheels (``candidates``), ranks
variants (``variant_wheels``), picks kernels (``device_extras``) and returns a ``WheelChoice``, whose code
``kernel_proof`` reads. ``package_set`` has uv resolve the rest around it (``resolve``), by the rules of
``requested``; ``install`` makes an ``InstallPlan`` of that and carries it out into an ``InstallTarget``
(``environment``): uv gets a ``lock``, and what ``fetch`` has. ``installed_packages`` and
``gpu_support`` read what is there; ``configure`` makes variables of it (``settings``), ``doctor`` runs
the ``check_*`` over a ``DoctorSubject``, ``selftest`` runs the quick part of the smoke tests (``testing``).
"""
