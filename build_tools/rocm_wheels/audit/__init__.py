"""Checks of finished wheels: nothing counts before it was looked at.

``verify_wheel`` scans a wheel once into an ``AuditedWheel`` (with the ``WheelExpectation``), runs every
check of ``CHECKS`` and the import in a clean process, and returns an ``AuditReport`` of
``Finding`` and ``SkippedCheck``. Anybody's wheel can be audited; a recipe adds expectations. Wheels of a set
(``collect_set``) are read once (``read_wheels``), for their own checks and those of the ``AuditedSet``. A new
check is a function and a row in ``checks``.
"""
