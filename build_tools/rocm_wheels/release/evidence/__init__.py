"""Evidence: what was found out about the wheels of a set, by whom, when and on what machine.

``results`` makes ``Evidence`` of what verify, resolve-check, the smoke tests and torch's own tests write, and
of JUnit (``junit``); ``signature`` signs it; ``store`` writes it beside the set and reads it back.
"""
