"""Which checks there are, and which of them for which devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module

from rocm_wheels.errors import UsageError
from rocm_wheels.hosts.selftest.checks.run import MODULES
from rocm_wheels.hosts.selftest.outcome import SelfTestCase
from rocm_wheels.records import suggest_name

CASE_GROUPS = tuple(MODULES)
ALL_GROUPS = "all"
DEVICE_CHOICES = ("auto", "all", "cpu")
FIRST_CASE = SelfTestCase("import", "torch")
LISTING_CASE = SelfTestCase("devices", "listing")


def parse_groups(words: Iterable[str]) -> tuple[str, ...]:
    """Return the groups that words name, in their order here; none and ``all`` stand for every one."""
    names = [word.lower() for word in words]
    for word in names:
        if word not in (*CASE_GROUPS, ALL_GROUPS):
            hint = suggest_name(word, (*CASE_GROUPS, ALL_GROUPS))
            raise UsageError(
                f"there are no checks {word}{hint}", tip=f"checks: {', '.join((ALL_GROUPS, *CASE_GROUPS))}"
            )
    if not names or ALL_GROUPS in names:
        return CASE_GROUPS
    return tuple(group for group in CASE_GROUPS if group in names)


def list_case_names(group: str) -> tuple[str, ...]:
    """Return the names of a group's checks."""
    modules = (import_module(f"rocm_wheels.hosts.selftest.checks.{name}") for name in MODULES[group])
    return tuple(name for module in modules for name in module.CASES)


def list_cases(groups: Sequence[str], devices: Sequence[str]) -> list[SelfTestCase]:
    """Return the cases of groups on devices, device by device, without ``FIRST_CASE`` and ``LISTING_CASE``."""
    cases = [SelfTestCase("import", name) for name in list_case_names("import")] if "import" in groups else []
    cases = [case for case in cases if case != FIRST_CASE]
    for device in devices:
        for group in groups:
            if group != "import":
                names = [name for name in list_case_names(group) if SelfTestCase(group, name) != LISTING_CASE]
                cases += [SelfTestCase(group, name, device) for name in names]
    return cases


def choose_devices(choice: str, facts: Mapping[str, object]) -> tuple[str, ...]:
    """Return the devices to test: ``auto`` is every GPU that torch sees, else the CPU; ``all`` is both.

    One GPU is named as torch does (``cuda:1``). UsageError for one that torch does not see.
    """
    gpu_facts = facts.get("devices")
    gpus = tuple(str(device["device"]) for device in gpu_facts) if isinstance(gpu_facts, list) else ()
    if choice == "auto":
        return gpus or ("cpu",)
    if choice == "all":
        return ("cpu", *gpus)
    if choice not in ("cpu", *gpus):
        raise UsageError(
            f"torch sees no device {choice}", tip=f"devices here: {', '.join(('auto', 'all', 'cpu', *gpus))}"
        )
    return (choice,)
