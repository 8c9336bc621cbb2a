"""What is wrong with a machine for torch on ROCm, and what to do about it.

| module | what it does |
|---|---|
| ``looking`` | ``inspect_host``: gather what the checks look at |
| ``table`` | all checks: to add one, a function and a line there |
| ``subject`` | what checks look at, and what they say |
| ``machine`` | the facts of the system, read from files below a root |
| ``gpus`` ``devices`` ``surroundings`` | checks of the machine |
| ``rocm`` ``packages`` ``requirements`` ``kernels`` ``issues`` | checks of what is installed |
| ``variables`` | harmful variables, by a table with sources |
| ``report`` | the result as text and as JSON |
"""
