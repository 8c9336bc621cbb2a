"""The report of a run: one page of HTML that needs no network, made from its record."""
