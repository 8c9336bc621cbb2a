"""Wheel variants (PEP 825, PEP 850): what ``variant.json`` says, labels, order, stamping wheels."""
