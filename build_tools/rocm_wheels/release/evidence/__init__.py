"""Evidence: what was found out about the wheels of a set, by whom, when and on what machine.

``results`` makes ``Evidence`` of what audit, resolve-check, the smoke tests and torch's own tests write, and
of JUnit (``junit``); ``store`` signs it, writes it beside the set and reads it back.
"""
