"""Tables of ELF and PE files as loaders read them: real libraries, cut short, changed in every byte."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from audit_wheels import library
from hypothesis import given
from hypothesis import strategies as st

from rocm_wheels.core import DataError
from rocm_wheels.wheels import plan_clear_stack, plan_run_path, read_host_binary, read_pe_imports

CONTENT = library("gfx942", run_path="/opt/build:$ORIGIN", stack=None)


def test_library_without_a_stack_header_asks_for_an_executable_one() -> None:
    binary = read_host_binary(memoryview(CONTENT), "x")
    assert binary is not None and binary.architecture == "x86_64"
    assert binary.has_executable_stack and plan_clear_stack(binary) is None


def test_names_that_nobody_can_count_may_be_shared() -> None:
    """Without .dynsym nothing says which names there are: a text stays, but its entry can go."""
    binary = read_host_binary(memoryview(CONTENT), "x")
    assert binary is not None
    (run_path,) = binary.run_paths
    assert run_path.is_shared and run_path.entries == ("/opt/build", "$ORIGIN")
    assert plan_run_path(binary, ["$ORIGIN"]) is None
    patches = plan_run_path(binary, [""])
    assert patches is not None
    changed = bytearray(CONTENT)
    for patch in patches:
        changed[patch.offset : patch.offset + len(patch.content)] = patch.content
    after = read_host_binary(memoryview(changed), "x")
    assert after is not None and after.run_paths == () and len(changed) == len(CONTENT)


def test_longer_text_does_not_fit() -> None:
    binary = read_host_binary(memoryview(CONTENT), "x")
    assert binary is not None
    assert plan_run_path(binary, ["$ORIGIN/of/a/folder/that/is/longer"]) is None
    assert plan_run_path(binary, [binary.run_paths[0].text]) == []


@pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="needs a C compiler for Linux"
)
def test_symbol_versions_of_a_linked_library(tmp_path: Path) -> None:
    path = tmp_path / "lib.so"
    source = '#include <stdio.h>\nvoid f(void) { puts("x"); }'
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", path], input=source, text=True, check=True
    )
    binary = read_host_binary(memoryview(path.read_bytes()), "x")
    assert binary is not None
    assert any(version.startswith("GLIBC_2.") for version in binary.versions["libc.so.6"])
    assert not binary.has_executable_stack and not binary.has_debug


@given(st.integers(0, len(CONTENT) - 1), st.binary(min_size=1, max_size=8))
def test_damage_is_an_error_of_data_or_is_not_seen(place: int, damage: bytes) -> None:
    damaged = CONTENT[:place] + damage + CONTENT[place + len(damage) :]
    for content in (damaged, CONTENT[:place]):
        for read in (read_host_binary, read_pe_imports):
            try:
                read(memoryview(content), "x")
            except DataError:
                continue
