"""Find the first set that a command fails with, between one that works and one that does not.

| module | what it knows |
|---|---|
| ``search`` | which set to try next, by what is known: nothing but numbers |
| ``question`` | what is asked: which sets, in which order, and what tells one question from another |
| ``lines`` | which sets are in one line: of one platform, and of one torch line |
| ``state`` | what was found so far, in a folder: a run that was killed is carried on |
| ``place`` | where uv finds a set: as it is served, in a folder, or copied out of the store |
| ``probing`` | one set: an environment of its own, the set in it, the command |
| ``bisecting`` | the ends, then one set after the other |
| ``answer`` | what came of it, and what differs between the two sets |
"""
