"""Which files of an index a machine gets, and why.

| module | what it does |
|---|---|
| ``host`` | the machine that wheels are chosen for, real or stated |
| ``candidate`` | what came of it: every wheel with its rank or the reason why it is out |
"""
