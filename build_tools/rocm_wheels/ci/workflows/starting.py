"""What begins by itself or by hand: nightly, release, presubmit, and the tool's own CI."""

from __future__ import annotations

from typing import Any

from rocm_wheels.ci.workflows.building import GIVEN
from rocm_wheels.ci.workflows.pieces import (
    HOSTED,
    STORE_AND_ATTEST,
    Job,
    Pieces,
    Workflow,
    calling,
    each,
    inputs,
    job,
    run,
)

_CHOSEN: dict[str, tuple[str, Any]] = {
    "lines": ("torch lines, by spaces; empty: those of the policy", ""),
    "families": ("GPU families, by spaces; empty: those of the policy", ""),
    "pythons": ("Pythons, by spaces; empty: those of the policy", ""),
    "platform": ("linux or windows; empty: both", ""),
    "rocm_version": ("ROCm; empty: the newest that AMD has with each line", ""),
    "rocm_index": ("index of the ROCm packages; empty: the usual one", ""),
    "store": ("store of releases; empty: the usual one", ""),
}
_VARIABLES = {
    f"ROCM_WHEELS_{name.upper()}": f"${{{{ inputs.{name} }}}}"
    for name in ("lines", "families", "pythons", "platform", "rocm_version")
}
_LINES = "rocm-wheels matrix --format github --trigger {} --rows lines --output lines"
_ROW = {name: f"${{{{ matrix.{name} }}}}" for name in ("line", "platform", "families", "pythons")}
_OF_LINUX = "${{{{ matrix.platform == 'linux' && vars.ROCM_WHEELS_{} || '' }}}}"


def nightly(pieces: Pieces) -> Workflow:
    """Return ``nightly.yml``: every line of the night; what its gate lets pass is shown."""
    given = {**_CHOSEN, "promote": ("show on the channel nightly what its gate lets pass", True)}
    on = {"schedule": [{"cron": "17 1 * * *"}], "workflow_dispatch": {"inputs": inputs(given)}}
    shown = "${{ github.event_name == 'schedule' || inputs.promote }}"
    return _releasing(pieces, "nightly", on, channel="nightly", promote=shown)


def release(pieces: Pieces, channels: list[str]) -> Workflow:
    """Return ``release.yml``: builds, stages and tests; somebody promotes."""
    given = {**_CHOSEN, "channel": ("channel whose gate judges", tuple(channels))}
    on = {"workflow_dispatch": {"inputs": inputs(given, by_hand=True)}}
    return _releasing(pieces, "release", on, channel="${{ inputs.channel }}", promote=False)


def presubmit(pieces: Pieces) -> Workflow:
    """Return ``presubmit.yml``: the cheapest cells of what a pull request touches; no store, no secrets."""
    command = _LINES.format('presubmit --since "$BASE" --cheapest')
    base = {"BASE": "${{ github.event.pull_request.base.sha }}"}
    given = {
        **_called("presubmit"),
        "rocm_version": "${{ matrix.rocm }}",
        "rocm_index": "${{ vars.ROCM_WHEELS_ROCM_INDEX }}",
        "save_cache": False,
    }
    return {
        "name": "presubmit",
        "on": {"pull_request": None},
        "permissions": {},
        "concurrency": {"group": "presubmit-${{ github.ref }}", "cancel-in-progress": True},
        "defaults": {"run": {"shell": "bash"}},
        "jobs": {
            "plan": _plan(pieces, run("lines", command, base, id="lines"), history=True),
            "build": calling(
                "build-line.yml",
                given,
                {"contents": "read"},
                name="${{ matrix.name }}",
                needs=["plan"],
                **{"if": "${{ needs.plan.outputs.lines_count != '0' }}"},
                strategy=each("lines", of="plan"),
            ),
        },
    }


def own_tests(pieces: Pieces, pythons: list[str]) -> Workflow:
    """Return ``ci.yml``: the tool's own tests, as the README says them."""
    begin = pieces.begin("${{ matrix.python }}")[:2]
    return {
        "name": "CI",
        "on": {"push": {"branches": ["main"]}, "pull_request": None},
        "permissions": {},
        "concurrency": {"group": "ci-${{ github.ref }}", "cancel-in-progress": True},
        "defaults": {"run": {"shell": "bash"}},
        "jobs": {
            "test": job(
                HOSTED,
                45,
                [*begin, run("test", "bash .ci/run")],
                name="Python ${{ matrix.python }}",
                strategy={"fail-fast": False, "matrix": {"python": pythons}},
            )
        },
    }


def _releasing(
    pieces: Pieces, trigger: str, on: dict[str, Any], *, channel: str, promote: str | bool
) -> Workflow:
    step = run("lines", _LINES.format(trigger), _VARIABLES, id="lines")
    given = {
        **_called(trigger),
        "rocm_version": "${{ matrix.rocm }}",
        "rocm_index": "${{ inputs.rocm_index || vars.ROCM_WHEELS_ROCM_INDEX }}",
        "store": "${{ inputs.store || vars.ROCM_WHEELS_STORE }}",
        "channel": channel,
        "promote": promote,
        "test_image": _OF_LINUX.format("TEST_IMAGE"),
        "save_cache": True,
    }
    return {
        "name": trigger,
        "on": on,
        "permissions": {},
        "concurrency": {"group": f"{trigger}-${{{{ github.ref }}}}", "cancel-in-progress": False},
        "defaults": {"run": {"shell": "bash"}},
        "jobs": {
            "plan": _plan(pieces, step, history=False),
            "line": calling(
                "release-line.yml",
                given,
                STORE_AND_ATTEST,
                name="${{ matrix.name }}",
                needs=["plan"],
                **{"if": "${{ needs.plan.outputs.lines_count != '0' }}"},
                strategy=each("lines", of="plan"),
            ),
        },
    }


def _called(trigger: str) -> dict[str, str | bool]:
    assert {"trigger", "build_image", *_ROW} < set(GIVEN)
    return {"trigger": trigger, **_ROW, "build_image": _OF_LINUX.format("BUILD_IMAGE")}


def _plan(pieces: Pieces, step: dict[str, Any], *, history: bool) -> Job:
    return job(
        HOSTED,
        15,
        [*pieces.begin(history=history), step],
        outputs={name: f"${{{{ steps.lines.outputs.{name} }}}}" for name in ("lines", "lines_count")},
    )
