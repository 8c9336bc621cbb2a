"""YAML tables as typed records: every scalar is text until a model says what it is.

A mistake is reported with file, line and column, and with the name that was probably
meant. ``3.10`` stays ``3.10``; a key given twice or not known is an error.
"""

from __future__ import annotations

from rocm_wheels.records.faults import SENTENCES, say
from rocm_wheels.records.reading import Record, fault, load, parse, read_json, read_text, spelled
from rocm_wheels.words import did_you_mean

__all__ = [
    "SENTENCES",
    "Record",
    "did_you_mean",
    "fault",
    "load",
    "parse",
    "read_json",
    "read_text",
    "say",
    "spelled",
]
