"""Finalizing: a staged set with pre-release versions becomes a new set with final ones.

| module | what it knows |
|---|---|
| ``versions`` | what becomes of the version of each wheel, and of ROCm's |
| ``requirements`` | what becomes of a requirement: pins follow, all else stays as it is written |
| ``texts`` | the versions that are written in Python files of a wheel |
| ``plan`` | each wheel of the set, old and new, by the set's document and its METADATA |
| ``rewriting`` | wheels fetched, written anew, and compared: nothing differs but what was meant |
| ``finishing`` | the new set, staged; it names the old one and has no evidence yet |
"""
