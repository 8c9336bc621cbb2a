"""Tests of installed wheels on GPUs: smoke tests, and torch's own tests.

A ``TargetPython`` is inspected, its wheel files are identified, each GPU gets a ``GpuSession``; pytest runs
in the target's Python, and a recorder writes every outcome at once, so that no planned test is lost.
What came of it is ``Results`` (smoke tests) or ``TorchResults``; both can be evidence for a release.
"""
