"""Releases: wheel sets in stores, what is known of them, and what of them users see.

| module | what it knows |
|---|---|
| ``layout`` ``sets`` | where things lie in a store; the document of a set |
| ``staging`` ``pages`` | wheels become a set with an index of its own |
| ``overview`` ``results`` | all sets of a store, and what is known of them, in a moment |
| ``evidence…`` ``signing`` | results: read, written down, signed |
| ``gate`` | whether a set may go to a channel |
| ``newest`` | which of several sets is the newest, for each platform |
| ``views`` | what follows from what is known of released sets now |
"""
