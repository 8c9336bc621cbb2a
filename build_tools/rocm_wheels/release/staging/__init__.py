"""Staging: wheels become a set in a store, all or nothing, and a killed run is carried on with.

| module | what it knows |
|---|---|
| ``wheel`` | what a set says of a wheel, read in one pass |
| ``belonging`` | which lock each wheel is of, where variants were built from several |
| ``checks`` | what must be right before anything is sent |
| ``cells`` | what a set should hold by its lock, and what is missing |
| ``plan`` | which files a set is made of, in the order of their writes |
| ``sending`` | the writes, what is there already, and the look at all of it before the set is visible |
"""
