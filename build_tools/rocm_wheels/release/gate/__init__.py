"""The gate: what a channel needs of a set, what is known of it, and what follows.

| module | what it knows |
|---|---|
| ``policy`` | the file that says what each channel needs, who waives what, whose signatures count |
| ``needed`` | which wheels and targets a set must be tested on |
| ``history`` | what several results about the same wheels on the same kind of machine come to |
| ``case`` | waivers, and the sentences that a verdict is made of |
| ``on_gpus`` | the rules about GPUs, and who is excused from them |
| ``judge`` | the rules, one after the other: a verdict, without looking at anything but its arguments |
| ``asking`` | the same for a set in a store: evidence is read, then judged |
| ``verdict`` | what a verdict is, and how users see it |
"""
