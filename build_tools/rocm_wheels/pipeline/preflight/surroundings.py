"""Checks of the machine: memory, clock, language, limits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timezone

from rocm_wheels.pipeline.preflight.subject import PreflightFinding, PreflightSubject
from rocm_wheels.pipeline.summary import format_size

_SKEW_SECONDS = 5.0
_FIRST_ZIP_YEAR = 1980  # the format of wheels knows no earlier date
_SANE_YEARS = range(2026, 2100)
_FEW_OPEN_FILES = 1024  # a link of torch opens some thousand objects, but not all of them at once


def check_memory(subject: PreflightSubject) -> Iterator[PreflightFinding]:
    """One compiler at least must fit; so must as many as were asked for."""
    heavy = max(subject.costs, key=lambda cost: cost.estimate.memory_per_job, default=None)
    if heavy is None or not (each := heavy.estimate.memory_per_job):
        return
    machine, source = subject.machine, heavy.estimate.source
    prefix = f"{heavy.step}: one compiler may take {format_size(each)}"
    limits = f" ({', '.join(machine.limits)})" if machine.limits else ""
    if machine.memory < each:
        text = f"{prefix}, and there are {format_size(machine.memory)} of memory{limits}"
        yield PreflightFinding("warning", text, f"add memory or swap (the figure is from: {source})")
    elif machine.free_memory < each:
        text = f"{prefix}, and {format_size(machine.free_memory)} of memory are free{limits}"
        yield PreflightFinding("warning", text, "end other programs, or wait for them")
    elif subject.jobs and subject.jobs * each > machine.free_memory:
        text = (
            f"{prefix}: {subject.jobs} at a time {format_size(subject.jobs * each)}, and"
            f" {format_size(machine.free_memory)} are free{limits}"
        )
        fits = machine.free_memory // each
        yield PreflightFinding(
            "warning", text, f"{fits} at a time fit, and are taken when no number is given"
        )


def check_clock(subject: PreflightSubject) -> Iterator[PreflightFinding]:
    """What is newer than now is built again and again; wheels have no dates before 1980."""
    now = datetime.fromtimestamp(subject.now, timezone.utc)
    tip = "set the clock of this machine"
    if now.year not in _SANE_YEARS:
        certain = now.year < _FIRST_ZIP_YEAR
        text = f"the clock says {now:%Y-%m-%d %H:%M} UTC"
        yield PreflightFinding("error" if certain else "warning", text, tip)
    elif subject.newest is not None and subject.newest > subject.now + _SKEW_SECONDS:
        newest = datetime.fromtimestamp(subject.newest, timezone.utc)
        yield PreflightFinding(
            "warning",
            f"the clock says {now:%Y-%m-%d %H:%M} UTC, and the sources are of {newest:%Y-%m-%d %H:%M}: what"
            " is newer than now counts as changed in every build",
            tip,
        )


def check_locale(subject: PreflightSubject) -> Iterator[PreflightFinding]:
    """Programs that read files and names by the locale need UTF-8.

    Python itself takes UTF-8 where the locale is C (PEP 540) and we tell it to in builds; others do not.
    """
    if subject.platform == "windows":
        return
    candidates = ((name, subject.variables.get(name, "")) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    name, value = next(((name, value) for name, value in candidates if value), ("LANG", ""))
    match = re.search(r"\.([^@]+)", value)
    encoding = match[1].lower().replace("-", "") if match else ""
    tip = "export LC_ALL=C.UTF-8"
    if value in {"", "C", "POSIX"}:
        odd = [str(f.path) for f in subject.folders if not str(f.path).isascii()]
        if odd:
            text = f"{name} is {value or 'not set'}: programs of a build cannot name {odd[0]}"
            yield PreflightFinding("warning", text, tip)
    elif encoding != "utf8":
        text = f"{name}={value} is not UTF-8: programs that read files by it stop at a letter beyond ASCII"
        yield PreflightFinding("warning", text, tip)


def check_open_files(subject: PreflightSubject) -> Iterator[PreflightFinding]:
    """Linkers open many files at a time."""
    if subject.open_files is not None and subject.open_files < _FEW_OPEN_FILES:
        text = (
            f"only {subject.open_files} files may be open at a time: the link of a large library needs more"
        )
        yield PreflightFinding("warning", text, "ulimit -n 4096")
