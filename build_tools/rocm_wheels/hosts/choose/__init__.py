"""Which files of an index a machine gets, and why.

| module | what it does |
|---|---|
| ``host`` ``machine`` | the machine that wheels are chosen for, real or stated |
| ``candidate`` | what comes of it: every wheel with its rank or the reason why it is out |
| ``choosing`` | all of it, for several requirements |
| ``known_indexes`` ``located`` ``pages`` | which index, where it has the wheels of a project, what it says |
| ``sift`` | versions, tags, yanked files: as pip sorts them |
| ``documents`` ``ranking`` | what the variants of a version want, and which is the best |
| ``picking`` | the newest version of which a wheel fits |
| ``devices`` ``served`` | kernels in wheels of their own, GPUs that have none |
| ``notes`` ``misses`` | what is to be said: of a choice, and when there is none |
"""
