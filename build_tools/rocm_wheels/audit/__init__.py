"""Checks of finished wheels: nothing counts before it was looked at.

``verify_wheel`` runs every check of ``table.CHECKS`` on one wheel and returns an
``AuditReport``; a check that cannot run is listed with its reason, never left out.
"""
