"""Release wheels: sets of wheels in a store, evidence about them, the gate of a channel, promotion.

``SetDocument`` is what ``stage`` writes last, ``Evidence`` one result about its wheels, ``Policy`` what a
channel needs, ``Verdict`` the facts that the gate finds, of which ``verdict_text`` makes sentences and
``next_step`` commands; ``Channel`` lists the sets that people get.

Data goes: wheels → ``staged_wheels`` → ``stage`` → store; results → ``evidence/`` → store;
both → ``gate`` → ``channel`` → ``pages``; later results → ``refresh`` → views, with ``support.json``.
``document_seal`` writes and reads the documents of sets and channels; ``set_conflicts`` and ``set_needs``
say what a channel refuses. ``queries`` filters sets, ``bisect`` searches in them, ``fsck`` looks at a store,
``prune`` removes.
"""
