"""What follows from what is known of released sets now: told lines, views, and what is supported.

| module | what it knows |
|---|---|
| ``known`` | the document of a channel: each set with what is known of it, and which sets its views show |
| ``telling`` | what is told of a set by the evidence of now, whatever its age |
| ``evidence`` | evidence goes where the released set is, so that readers of it see why |
| ``showing`` | which sets a view shows, and how its pages are exchanged |
| ``platforms`` | which sets of two platforms cannot be in one view |
| ``support`` ``public`` | support.json, of a family and of all; where the store is seen from outside |
| ``refreshing`` | all of it, for a channel: every write can be repeated, nothing is written that is there |
"""
