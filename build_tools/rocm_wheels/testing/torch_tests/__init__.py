"""Torch's own tests, from the commit that a torch was built from, on the GPUs that are asked for.

| module | what it does |
|---|---|
| ``sources`` | whether test sources are those of the installed torch |
| ``plan`` | which files are run, and which shard of them |
| ``outcomes`` | what is on the disk of a file that was run, or is |
| ``part`` | one file: a process of its own, begun again behind a test that killed it |
| ``records`` | ``results.json``: what came of it all, and of what |
| ``reports`` | the JUnit file of each |
| ``running`` | all files on one GPU; what was run before is not run again |
| ``shown`` | results for people |

``testing.recording`` is what runs inside pytest. What is known of single tests is ``data/torch_tests.yaml``.
"""
