"""Promotion: a staged set that passed its gate is copied to the release area and shown on a channel.

| module | what it knows |
|---|---|
| ``channel`` | the document of a channel: the sets that it shows, and the change that is being made |
| ``copying`` | staging to release, inside the store, with the hashes of both |
| ``ties`` | what ties the wheels of a set together: exact pins, and the order that follows from them |
| ``overlaps`` | wheels that would be taken in the place of others |
| ``fewer`` | GPUs that people have code for now, and would not have with a set |
| ``released`` | the sets of the release area, each read once |
| ``pages`` | the pages of a channel, which follow from the sets that it shows |
| ``switching`` | how pages are exchanged: one rename in a folder, else one after the other |
| ``promoting`` | promote, demote, abandon: claim, do, clear; whoever comes after a killed run does the rest |
| ``objections`` | why a channel is not changed, in words |
| ``rehearsal`` | a store that only says what would be written |
"""
