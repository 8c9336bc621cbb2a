"""The plan as a file: what a run was asked for, the trees it is of, and its steps.

No secret is in it: of a package index that has a password, the step that installs from it is told the
address again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError

from rocm_wheels import __version__
from rocm_wheels.core import (
    HIDDEN,
    DataError,
    UsageError,
    hide_credentials,
    read_json_file,
    summarize_faults,
    write_json_file,
)
from rocm_wheels.pipeline.request import WheelsRequest
from rocm_wheels.pipeline.source_checks import LockedBuild
from rocm_wheels.pipeline.step import BuildCell, BuiltAgainst, KnownAfter, Plan, Step, StepInput, StepKind
from rocm_wheels.sources import TreeIdentity

PLAN_FORMAT = 1
_STEP_ID = re.compile(r"\w[\w.-]*")
_ADDRESS_OPTIONS = {"index_url": "--index-url", "find_links": "--find-links"}
_REQUEST_ADAPTER = TypeAdapter(WheelsRequest)


@dataclass(frozen=True)
class PlanFile:
    """A plan with all that running its steps needs. ``lock``: path and SHA-256 of the lock it is of."""

    request: WheelsRequest
    plan: Plan
    identities: Mapping[str, TreeIdentity]
    lock: tuple[Path, str] | None = None

    @classmethod
    def from_plan(
        cls,
        request: WheelsRequest,
        plan: Plan,
        identities: Mapping[str, TreeIdentity],
        locked: LockedBuild | None,
    ) -> PlanFile:
        """Make it from what a run has."""
        return cls(
            request, plan, identities, None if locked is None else (locked.path.absolute(), locked.digest)
        )


def write_plan(path: Path, file: PlanFile) -> None:
    """Write a plan, whole or not at all."""
    write_json_file(path, make_plan_json(file))


def make_plan_json(file: PlanFile) -> dict[str, Any]:
    """Return a plan as plain JSON values."""
    sdk = file.request.sdk
    urls: dict[str, Any] = {name: getattr(sdk, name) for name in _ADDRESS_OPTIONS}
    hidden = {name: hide_credentials(url) for name, url in urls.items() if url}
    public_request = replace(
        file.request, sdk=replace(sdk, **{**urls, **hidden}), lock=file.lock and file.lock[0]
    )
    return {
        "format": PLAN_FORMAT,
        "rocm-wheels": __version__,
        "request": _REQUEST_ADAPTER.dump_python(public_request, mode="json"),
        "lock": None if file.lock is None else {"path": str(file.lock[0]), "sha256": file.lock[1]},
        "targets": list(file.plan.targets),
        "built against": [asdict(wheel) for wheel in file.plan.against],
        "trees": {name: asdict(identity) for name, identity in file.identities.items()},
        "steps": [make_step_json(step) for step in file.plan],
    }


def make_step_json(step: Step) -> dict[str, Any]:
    """Return a step as plain JSON values; an input that is known later is an object that says after what."""
    inputs = {
        name: {"known after": value.step} if isinstance(value, KnownAfter) else value
        for name, value in step.inputs.items()
    }
    return {
        "id": step.id,
        "kind": step.kind,
        "python": step.cell.tag,
        "target set": step.cell.target_set,
        "project": step.project,
        "after": list(step.after),
        "behind": list(step.behind),
        "verdict": step.verdict,
        "why": step.why,
        "fingerprint": step.fingerprint,
        "inputs": inputs,
        "command": step.command,
        "environment": dict(step.environment),
        "estimate": None if step.estimate is None else asdict(step.estimate),
    }


def read_plan(path: Path) -> PlanFile:
    """Read a plan. DataError when it is none, or one of another version of this program."""
    raw = read_json_file(path, complaint="is no plan", tip="make one: rocm-wheels plan … -o FILE")
    if not isinstance(raw, dict) or raw.get("format") != PLAN_FORMAT:
        raise DataError(f"{path} is no plan of this version ({__version__})", tip="make it again with `plan`")
    try:
        steps = [_parse_step(fields) for fields in raw["steps"]]
        _refuse_unsound_steps(steps)
        lock = raw["lock"]
        return PlanFile(
            _REQUEST_ADAPTER.validate_python(raw["request"]),
            Plan(
                {step.id: step for step in steps},
                tuple(raw["targets"]),
                tuple(BuiltAgainst(**fields) for fields in raw["built against"]),
            ),
            {name: TreeIdentity(**fields) for name, fields in raw["trees"].items()},
            None if lock is None else (Path(lock["path"]), str(lock["sha256"])),
        )
    except ValidationError as cause:
        wrong = f"{path} is a damaged plan: its request: {summarize_faults(cause, WheelsRequest)}"
        raise DataError(wrong, tip="make it again with `plan`") from None
    except (KeyError, TypeError, ValueError) as cause:
        raise DataError(f"{path} is a damaged plan", tip="make it again with `plan`") from cause


def restore_addresses(file: PlanFile, step: str, addresses: Mapping[str, str | None]) -> PlanFile:
    """Return the plan with the given ``addresses`` of packages, by their names in its request.

    Raises UsageError where a password is not in the file, not given, and the step needs it.
    """
    sdk = file.request.sdk
    for name, option in _ADDRESS_OPTIONS.items():
        address = getattr(sdk, name)
        if (
            address
            and HIDDEN in address
            and not addresses.get(name)
            and file.plan.find_step(step).kind == "install-rocm"
        ):
            raise UsageError(
                f"the plan has {option} {address}: its password is not in the plan",
                tip=f"give {option}, or set ROCM_WHEELS_{name.upper()}",
            )
    replacements: dict[str, Any] = {name: addresses[name] for name in _ADDRESS_OPTIONS if addresses.get(name)}
    return replace(file, request=replace(file.request, sdk=replace(sdk, **replacements)))


def _refuse_unsound_steps(steps: Sequence[Step]) -> None:
    """Raise ValueError for ids that are no names (files are called by them), and for what is not there."""
    step_ids = {step.id for step in steps}
    for step in steps:
        if not _STEP_ID.fullmatch(step.id) or step.kind not in get_args(StepKind):
            raise ValueError(f"{step.id} ({step.kind}) is no step")
        if missing := {*step.after, *step.behind} - step_ids:
            raise ValueError(f"{step.id} waits for {', '.join(sorted(missing))}, which the plan has not")


def _parse_step(raw: Mapping[str, Any]) -> Step:
    inputs: dict[str, StepInput] = {
        name: KnownAfter(value["known after"]) if isinstance(value, dict) else str(value)
        for name, value in raw["inputs"].items()
    }
    return Step(
        id=raw["id"],
        kind=raw["kind"],
        cell=BuildCell(raw["python"], raw["target set"]),
        project=raw["project"],
        after=tuple(raw["after"]),
        behind=tuple(raw["behind"]),
        inputs=inputs,
        command=raw["command"],
        environment=raw["environment"],
        verdict=raw["verdict"],
        why=raw["why"],
    )
