"""Checks that run inside the environment whose torch is tested: the standard library and torch, nothing else.

``run`` is started by its path and loads the others by theirs; here they are imported only to list what they
check. Each module has ``CASES``: name → function of (torch, device, check), which returns what to say about
it and raises (AssertionError or anything) when the check fails; ``check.skip`` says why there is nothing.

| module | what it checks |
|---|---|
| ``run`` | runs cases one after the other and writes down each result before the next begins |
| ``imports`` | torch and what is installed beside it |
| ``devices`` | every device: does it take data and give it back |
| ``compiled`` | torch.compile |
| ``maths`` | arithmetic against float64 on the CPU |
| ``functions`` | layers of neural networks, forward and backward, against float64 on the CPU |
| ``attention`` | scaled dot product attention by every back end |
"""
