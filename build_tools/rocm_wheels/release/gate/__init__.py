"""The gate of a channel: may people get this set?

``policy`` reads what a channel needs; ``history`` weighs several results about the same wheels; ``judge``
goes through the rules and returns a ``Verdict``, which ``verdict`` describes, for people who install too.
"""
