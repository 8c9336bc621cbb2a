"""Tests of installed wheels on GPUs: run each where it can harm no other, and write down what came of it.

| module | what it does |
|---|---|
| ``results`` | the file that says what came of every test |
| ``data`` | the compatibility data that smoke tests go through, as JSON |
| ``target`` | the Python that is tested: torch, pytest, GPUs as torch sees them |
| ``wheels`` | which wheel files the installed distributions are of |
| ``sessions`` | which GPUs are tested, each in a session of pytest of its own |
| ``accounting`` | every planned test with its outcome, whatever ended the run |
| ``smoke`` | all of it: run the sessions, keep the results |
| ``load_torch_tests`` | torch's own tests; ``recording`` is what runs inside their pytest |
| ``junit``, ``table`` | results for machines and for people |

The tests themselves are in ``smoke-tests/`` and run under the Python that is tested.
"""
