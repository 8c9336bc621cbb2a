"""Sets of wheels: staged, tested, judged by a gate and, where somebody asks for it, promoted.

- ``release-set.yml``: a set of a line, of one family or of all, so that what one job says of it (its id, its
  index) reaches the others; jobs of a matrix cannot say anything apart
- ``release-line.yml``: builds a line (``build-line.yml``), then does that for each set

Only jobs that write to the store may ask for a token to do so, and none of them runs what was built. Machines
with GPUs, which do, hand their results over as artifacts.
"""

from __future__ import annotations

from typing import Any

from rocm_wheels.ci.workflows.building import GIVEN, LOCK, OF_LINE, matrix_outputs, matrix_step
from rocm_wheels.ci.workflows.pieces import (
    STORE,
    STORE_AND_ATTEST,
    Job,
    Pieces,
    Step,
    Workflow,
    calling,
    each,
    expression,
    inputs,
    job,
    one_after_another,
    run,
    when,
)
from rocm_wheels.ci.workflows.testing import ONE, STAGED, results_job, smoke_job, torch_job
from rocm_wheels.model.ci import HOSTED_RUNNER, MULTI_ARCH

_STORE: dict[str, tuple[str, Any]] = {
    "store": ("store of releases: s3://bucket/prefix, or a folder of machines that share one", ...),
    "channel": ("channel whose gate judges: nightly, prerelease or stable; empty: none does", ...),
    "promote": ("whether to show on the channel what its gate lets pass", False),
    "test_image": ("image to test in, by digest; empty: on the machine itself", ""),
}
_SET = {
    "family": ("what the set is of: a GPU family, or multi-arch", ...),
    "stager": ("label of the machine that stages it, which has the disk for all its wheels", ...),
    **{name: about for name, about in GIVEN.items() if name not in {"build_image", "local_version"}},
    **_STORE,
}
_SAVING = {"save_cache": ("whether what is built is trusted to fill the compiler cache of others", True)}
_CHANNEL = {"CHANNEL": "${{ inputs.channel }}"}
_FOUND = "--from verify.json --from resolve-check.json --wheels wheels"
GATE = f'rocm-wheels gate {ONE} --channel "$CHANNEL" --explain'
PROMOTE = f'rocm-wheels promote {ONE} --channel "$CHANNEL"'


def release_set(pieces: Pieces) -> Workflow:
    """Return ``release-set.yml``."""
    staged = "!cancelled() && needs.stage.outputs.set != ''"
    return {
        "name": "release a set",
        "on": {"workflow_call": {"inputs": inputs(_SET)}},
        "permissions": {},
        "defaults": {"run": {"shell": "bash"}},
        "jobs": {
            "stage": _stage(pieces),
            "test": smoke_job(pieces, staged),
            "tests": torch_job(pieces, staged),
            "results": results_job(pieces, staged),
            "gate": _gate(pieces, staged),
            "promote": _promote(pieces),
        },
    }


def release_line(pieces: Pieces) -> Workflow:
    """Return ``release-line.yml``.

    It asks for the sets itself: whether a called workflow of which a job failed has outputs is said nowhere,
    and one build that fails keeps no other set from its release.
    """
    handed = {name: expression(f"inputs.{name}") for name in GIVEN}
    own = {name: expression(f"inputs.{name}") for name in _SET}
    rows = {name: expression(f"matrix.{name}") for name in ("family", "stager", "families", "pythons")}
    planned = "needs.plan.result == 'success'"
    return {
        "name": "release a line",
        "on": {"workflow_call": {"inputs": inputs({**GIVEN, **_STORE, **_SAVING})}},
        "permissions": {},
        "defaults": {"run": {"shell": "bash"}},
        "jobs": {
            "plan": job(
                HOSTED_RUNNER,
                15,
                [*pieces.begin(), matrix_step(sets="sets")],
                outputs=matrix_outputs("sets"),
            ),
            "build": calling(
                "build-line.yml",
                {**handed, "save_cache": "${{ inputs.save_cache }}"},
                {"contents": "read"},
                name="build",
            ),
            "set": calling(
                "release-set.yml",
                {**own, **rows},
                STORE_AND_ATTEST,
                name="${{ matrix.name }}",
                needs=["plan", "build"],
                if_=expression(f"!cancelled() && {planned} && needs.plan.outputs.sets_count != '0'"),
                strategy=each("sets", of="plan"),
            ),
        },
    }


def _stage(pieces: Pieces) -> Job:
    """Return the first job, which says that it begins though a cell was not built.

    Whether success() in a called workflow looks at what its caller waited for is said nowhere.
    """
    wheels = f'wheels/*.whl --lock {LOCK} --family "$FAMILY" --layout "$LAYOUT"'
    stage = f'rocm-wheels stage "$STORE" {wheels} --outputs'
    own = {name: STAGED[name] for name in ("STORE", "FAMILY")}
    this = {**own, "SET": "${{ steps.stage.outputs.set }}"}
    done = "${{ !cancelled() && steps.stage.outcome == 'success' }}"
    attest = pieces.uses("actions/attest-build-provenance", subject_path="wheels/*.whl")
    return job(
        "${{ inputs.stager }}",
        120,
        [
            *pieces.begin(s3=True),
            matrix_step(tested="tested", torch_tested="torch_tested"),
            pieces.download(f"lock-{OF_LINE}"),
            pieces.download_all("wheels-${{ inputs.family }}-cp*-" + OF_LINE, "wheels"),
            pieces.download_all(f"shared-cp*-{OF_LINE}", "wheels"),
            pieces.download_all(f"companions-cp*-{OF_LINE}", "wheels"),
            when(attest, "${{ startsWith(inputs.store, 's3://') }}"),
            pieces.credentials(),
            run("stage", stage, {**own, "LAYOUT": "${{ inputs.layout }}"}, id="stage"),
            run("verify", "rocm-wheels verify wheels/*.whl --json > verify.json", if_=done),
            run(
                "what installers would pick",
                'rocm-wheels resolve-check "$INDEX" wheels/*.whl --json > resolve-check.json',
                {"INDEX": "${{ steps.stage.outputs.index }}"},
                if_=done,
            ),
            run(
                "write it down",
                f"rocm-wheels evidence add {ONE} {_FOUND}",
                this,
                if_=done,
            ),
        ],
        permissions=STORE_AND_ATTEST,
        if_="${{ !cancelled() }}",
        outputs={
            "set": "${{ steps.stage.outputs.set }}",
            "index": "${{ steps.stage.outputs.index }}",
            **matrix_outputs("tested", "torch_tested"),
        },
    )


def _gate(pieces: Pieces, staged: str) -> Job:
    return job(
        HOSTED_RUNNER,
        20,
        [*pieces.begin(s3=True), pieces.credentials(), run("gate", GATE, {**STAGED, **_CHANNEL})],
        permissions=STORE,
        needs=["stage", "results"],
        if_=expression(f"{staged} && inputs.channel != ''"),
    )


def _promote(pieces: Pieces) -> Job:
    return job(
        HOSTED_RUNNER,
        60,
        [*pieces.begin(s3=True), pieces.credentials(), run("promote", PROMOTE, {**STAGED, **_CHANNEL})],
        permissions=STORE,
        needs=["stage", "gate"],
        if_="${{ !cancelled() && inputs.promote && needs.gate.result == 'success' }}",
        environment="${{ inputs.channel }}",
        concurrency=one_after_another("promote-${{ inputs.family }}"),
    )


def promote_by_hand(pieces: Pieces, families: list[str], channels: list[str]) -> Workflow:
    """Return ``promote.yml``: somebody shows a staged set on a channel, once its gate lets it pass."""
    given: dict[str, tuple[str, Any]] = {
        "set": ("the set, or how its id begins", ...),
        "family": ("its GPU family, or multi-arch", (*families, MULTI_ARCH)),
        "channel": ("where to show it", tuple(channels)),
        "store": ("another store than the usual one", ""),
    }
    named = {
        "STORE": "${{ inputs.store || vars.ROCM_WHEELS_STORE }}",
        "SET": "${{ inputs.set }}",
        "FAMILY": "${{ inputs.family }}",
        **_CHANNEL,
    }
    steps: list[Step] = [
        *pieces.begin(s3=True),
        when(_always(pieces), "${{ vars.ROCM_WHEELS_STORE_ROLE != '' }}"),
    ]
    return {
        "name": "promote",
        "run-name": "promote ${{ inputs.set }} to ${{ inputs.channel }}",
        "on": {"workflow_dispatch": {"inputs": inputs(given, by_hand=True)}},
        "permissions": {},
        "concurrency": one_after_another("promote-${{ inputs.family }}"),
        "defaults": {"run": {"shell": "bash"}},
        "jobs": {
            "gate": job(HOSTED_RUNNER, 20, [*steps, run("gate", GATE, named)], permissions=STORE),
            "promote": job(
                HOSTED_RUNNER,
                60,
                [*steps, run("promote", PROMOTE, named)],
                permissions=STORE,
                needs=["gate"],
                environment="${{ inputs.channel }}",
            ),
        },
    }


def _always(pieces: Pieces) -> Step:
    step = pieces.credentials()
    return {key: value for key, value in step.items() if key != "if"}
