"""The user's machine: which wheel fits it, install it, set it up, and say what is wrong.

| module | what it does |
|---|---|
| ``choose`` | which files of an index this machine gets, and why |
| ``install`` | fetch them, install them in the right order, check what came of it |
| ``installed`` | what torch and its companions are in an environment, and for which GPUs |
| ``configure`` | variables that a card needs |
| ``selftest`` ``benchmark`` | does it work, and how fast |
| ``doctor`` | what is wrong here, and what to do about it |
"""
