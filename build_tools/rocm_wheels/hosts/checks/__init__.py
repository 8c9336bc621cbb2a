"""Checks that run inside the environment whose torch is tested: the standard library and torch, nothing else.

``run`` is started by its path and loads the others by theirs; here they are imported only to list what they
check. Cases are tables of name → function of (torch, device, check), which returns what to say about it and
raises (AssertionError or anything) when the check fails; ``check.skip`` says why there is nothing to check.
"""
