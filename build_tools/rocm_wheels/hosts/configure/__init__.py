"""Variables that a card needs, and nothing else.

| module | what it does |
|---|---|
| ``setting`` | one variable, with the reason and where it is written that it works |
| ``cards`` | what the installed torch has for each card: its own kernels, others it can run, none |
| ``settings`` | the variables for a machine: a pure function |
| ``machine`` | look at this machine, or take a stated one |
| ``shells`` | lines that a shell can run |
"""
