"""What goes with what: GPU targets, ROCm, torch, dtypes, libraries. Every fact says who says so.

Each module owns one table of ``data/``; ``facts`` is what they share.
"""
