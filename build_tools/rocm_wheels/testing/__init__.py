"""Tests of installed wheels on GPUs: one runner for the smoke tests and for torch's own tests.

A ``TargetPython`` is inspected and its wheel files are identified (``installed_torch``), torch's sources are
compared with it (``torch_sources``). A suite becomes a
``TestRequest`` (``smoke``, ``torch_test_plan``), the GPUs become ``GpuPlace``s (``places``). ``runner``
starts pytest in the target's Python, where a recorder writes each outcome into a ``Journal`` at once, so that
no planned test is lost. What came of it is ``models.test_results.Results``, evidence for a release;
``results`` writes and shows it, ``summary`` puts those of several shards into a table.
"""
