"""What can be known to go wrong before anything runs: all of it said at once, each with a tip.

``look`` fills a ``Subject`` with plain values by a few looks at the disk; the checks are pure functions in
one table. An error is a failure that is certain; what is probable, or expected by an estimate, is a warning.
"""
