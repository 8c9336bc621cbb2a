"""Which checks there are, and which of them for which devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module

from rocm_wheels.errors import UsageError
from rocm_wheels.hosts.selftest.checks.run import MODULES
from rocm_wheels.hosts.selftest.outcome import Case
from rocm_wheels.records import did_you_mean

GROUPS = tuple(MODULES)
ALL = "all"
DEVICES = ("auto", "all", "cpu")
FIRST = Case("import", "torch")
LISTING = Case("devices", "listing")


def wanted_groups(words: Iterable[str]) -> tuple[str, ...]:
    """Return the groups that words name, in their order here; none and ``all`` stand for every one."""
    given = [word.lower() for word in words]
    for word in given:
        if word not in (*GROUPS, ALL):
            near = did_you_mean(word, (*GROUPS, ALL))
            raise UsageError(f"there are no checks {word}{near}", tip=f"checks: {', '.join((ALL, *GROUPS))}")
    if not given or ALL in given:
        return GROUPS
    return tuple(group for group in GROUPS if group in given)


def names_of(group: str) -> tuple[str, ...]:
    """Return the names of a group's checks."""
    modules = (import_module(f"rocm_wheels.hosts.selftest.checks.{name}") for name in MODULES[group])
    return tuple(name for module in modules for name in module.CASES)


def cases_of(groups: Sequence[str], devices: Sequence[str]) -> list[Case]:
    """Return the cases of groups on devices, device by device, without ``FIRST`` and ``LISTING``."""
    found = [Case("import", name) for name in names_of("import")] if "import" in groups else []
    found = [case for case in found if case != FIRST]
    for device in devices:
        for group in groups:
            if group != "import":
                names = [name for name in names_of(group) if Case(group, name) != LISTING]
                found += [Case(group, name, device) for name in names]
    return found


def chosen_devices(wanted: str, facts: Mapping[str, object]) -> tuple[str, ...]:
    """Return the devices to test: ``auto`` is every GPU that torch sees, else the CPU; ``all`` is both.

    One GPU is named as torch does (``cuda:1``). UsageError for one that torch does not see.
    """
    listed = facts.get("devices")
    gpus = tuple(str(one["device"]) for one in listed) if isinstance(listed, list) else ()
    if wanted == "auto":
        return gpus or ("cpu",)
    if wanted == "all":
        return ("cpu", *gpus)
    if wanted not in ("cpu", *gpus):
        raise UsageError(
            f"torch sees no device {wanted}", tip=f"devices here: {', '.join(('auto', 'all', 'cpu', *gpus))}"
        )
    return (wanted,)
