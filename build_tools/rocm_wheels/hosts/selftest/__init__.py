"""Does the installed torch work: import, devices, torch.compile, arithmetic, layers.

| module | what it does |
|---|---|
| ``outcome`` | what came of a check, and of all of them |
| ``cases`` | which checks there are, and on which devices |
| ``running`` | start checks in processes of their own, and go on after a crash or a hang |
| ``selftest`` | all of it, for one Python |
| ``checks`` | the checks themselves, which run under the Python that is tested |
"""
