"""YAML tables as typed records: every scalar is text until a model says what it is.

A mistake is reported with file, line and column, and with the name that was probably
meant. ``3.10`` stays ``3.10``; a key given twice or not known is an error.
"""

from __future__ import annotations

from rocm_wheels.records.faults import FAULT_SENTENCES, summarize_faults
from rocm_wheels.records.reading import (
    Record,
    make_record_error,
    load_record,
    parse_record,
    read_json_file,
    read_text_file,
    require_pattern,
)
from rocm_wheels.words import suggest_name

__all__ = [
    "FAULT_SENTENCES",
    "Record",
    "suggest_name",
    "make_record_error",
    "load_record",
    "parse_record",
    "read_json_file",
    "read_text_file",
    "summarize_faults",
    "require_pattern",
]
