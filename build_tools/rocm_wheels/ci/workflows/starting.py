"""What begins by itself or by hand: nightly, release, presubmit, postsubmit, the tool's own CI and nights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rocm_wheels.ci.workflows.building import GIVEN
from rocm_wheels.ci.workflows.pieces import (
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
    run,
)
from rocm_wheels.model.ci import HOSTED_RUNNER, MULTI_ARCH

_CHOSEN: dict[str, tuple[str, Any]] = {
    "lines": ("torch lines, by spaces; empty: those of the policy", ""),
    "families": ("GPU families, by spaces; empty: those of the policy", ""),
    "pythons": ("Pythons, by spaces; empty: those of the policy", ""),
    "platform": ("linux or windows; empty: both", ""),
    "layout": ("per-family or multi-arch; empty: that of the policy", ""),
    "rocm_version": ("ROCm; empty: the newest that AMD has with each line", ""),
    "rocm_index": ("index of the ROCm packages; empty: the usual one", ""),
    "store": ("store of releases; empty: the usual one", ""),
}
_VARIABLES = {
    f"ROCM_WHEELS_{name.upper()}": f"${{{{ inputs.{name} }}}}"
    for name in ("lines", "families", "pythons", "platform", "layout", "rocm_version")
}
_DEFAULT = "main"
_LINES = "rocm-wheels matrix --format github --trigger {} --rows lines --output lines"
_ROW = {name: f"${{{{ matrix.{name} }}}}" for name in ("line", "platform", "families", "pythons", "layout")}
# wheels of every run have names of their own: a release has final versions, unless somebody says otherwise
_RUN = "{}{{date}}.${{{{ github.run_number }}}}.${{{{ github.run_attempt }}}}"
_OF_LINUX = "${{{{ matrix.platform == 'linux' && vars.ROCM_WHEELS_{} || '' }}}}"


@dataclass(frozen=True)
class Usual:
    """What holds where nobody says otherwise: the address of the index of ROCm's packages."""

    rocm_index: str

    def index(self, *, chosen: bool) -> str:
        """Return the index: what somebody ``chosen`` by hand, the repository's variable, or the usual one."""
        return _first_of("rocm_index", f"'{self.rocm_index}'", chosen=chosen)


def nightly(pieces: Pieces, usual: Usual) -> Workflow:
    """Return ``nightly.yml``: every line of the night; what its gate lets pass is shown.

    A set of ``multi-arch`` for families that somebody chose is not: whoever has another GPU would get it as
    the newest, without code for it.
    """
    about = "show on the channel nightly what its gate lets pass; never multi-arch for chosen families"
    given = {**_CHOSEN, "promote": (about, True)}
    on = {"schedule": [{"cron": "17 1 * * *"}], "workflow_dispatch": {"inputs": inputs(given)}}
    whole = f"(matrix.layout != '{MULTI_ARCH}' || inputs.families == '')"
    shown = expression(f"github.event_name == 'schedule' || inputs.promote && {whole}")
    return _releasing(pieces, usual, "nightly", on, _asked("nightly"), channel="nightly", promote=shown)


def release(pieces: Pieces, usual: Usual, channels: list[str]) -> Workflow:
    """Return ``release.yml``: builds, stages and tests; somebody promotes."""
    given = {
        **_CHOSEN,
        "local_version": ("part of all versions before +rocm…, such as second; empty: none", ""),
        "channel": ("channel whose gate judges", tuple(channels)),
    }
    on = {"workflow_dispatch": {"inputs": inputs(given, by_hand=True)}}
    judged = "${{ inputs.channel }}"
    return _releasing(pieces, usual, "release", on, _asked("release"), channel=judged, promote=False)


def presubmit(pieces: Pieces, usual: Usual) -> Workflow:
    """Return ``presubmit.yml``: the cheapest cells of what a pull request touches; no store, no secrets.

    What is checked out is the pull request merged into its base, which is the first parent. The base that the
    event names is older where others were merged meanwhile: their changes would count as this one's.
    """
    command = _LINES.format("presubmit --since HEAD~1 --cheapest")
    given = {
        **_called("presubmit"),
        "rocm_version": "${{ matrix.rocm }}",
        "rocm_index": usual.index(chosen=False),
        "save_cache": False,
    }
    return {
        "name": "presubmit",
        "on": {"pull_request": None},
        "permissions": {},
        "concurrency": {"group": "presubmit-${{ github.ref }}", "cancel-in-progress": True},
        "defaults": {"run": {"shell": "bash"}},
        "jobs": {
            "plan": _plan(pieces, [run("lines", command, id="lines")], commits=2),
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


def postsubmit(pieces: Pieces, usual: Usual) -> Workflow:
    """Return ``postsubmit.yml``: what a push to the default branch touches: built, staged, tested on GPUs.

    Sets are shown on no channel, and no gate is asked, which wants more than a push is tested for: what is in
    the store can be promoted by hand. Each push is a group of its own: a group drops a run that waits when
    another comes, and with it what that push touched.
    """
    before = {"BEFORE": "${{ github.event.before }}"}
    step = run("lines", _LINES.format('postsubmit --since "$BEFORE"'), before, id="lines")
    on = {"push": {"branches": [_DEFAULT]}}
    made = _releasing(pieces, usual, "postsubmit", on, step, channel="", promote=False, commits=0)
    made["concurrency"] = {"group": "postsubmit-${{ github.sha }}", "cancel-in-progress": False}
    return made


def own_tests(pieces: Pieces, pythons: list[str]) -> Workflow:
    """Return ``ci.yml``: the tool's own tests, as the README says them."""
    begin = pieces.begin("${{ matrix.python }}")[:2]
    return {
        "name": "CI",
        "on": {"push": {"branches": [_DEFAULT]}, "pull_request": None},
        "permissions": {},
        "concurrency": {
            "group": "ci-${{ github.event_name == 'push' && github.sha || github.ref }}",
            "cancel-in-progress": True,
        },
        "defaults": {"run": {"shell": "bash"}},
        "jobs": {
            "test": job(
                HOSTED_RUNNER,
                45,
                [*begin, run("test", "bash .ci/run")],
                name="Python ${{ matrix.python }}",
                strategy={"fail-fast": False, "matrix": {"python": pythons}},
            )
        },
    }


def real_chain(pieces: Pieces, python: str) -> Workflow:
    """Return ``real.yml``: every night, ROCm and PyTorch themselves in a root of Debian (tests/real)."""
    return {
        "name": "real",
        "on": {"schedule": [{"cron": "41 3 * * *"}], "workflow_dispatch": None},
        "permissions": {},
        "concurrency": {"group": "real-${{ github.ref }}", "cancel-in-progress": False},
        "defaults": {"run": {"shell": "bash"}},
        "jobs": {
            "chain": job(
                HOSTED_RUNNER,
                180,
                [*pieces.begin(python)[:2], run("the chain", "bash tests/real/run")],
            )
        },
    }


def _asked(trigger: str) -> Step:
    return run("lines", _LINES.format(trigger), _VARIABLES, id="lines")


def _releasing(
    pieces: Pieces,
    usual: Usual,
    trigger: str,
    on: dict[str, Any],
    step: Step,
    *,
    channel: str,
    promote: str | bool,
    commits: int = 1,
) -> Workflow:
    chosen = "workflow_dispatch" in on
    store = _first_of("store", chosen=chosen)
    needed = run(
        "what the repository must say",
        "rocm-wheels workflows require ROCM_WHEELS_STORE",
        {"ROCM_WHEELS_STORE": store},
        if_="${{ steps.lines.outputs.lines_count != '0' }}",
    )
    given = {
        **_called(trigger),
        "rocm_version": "${{ matrix.rocm }}",
        "rocm_index": usual.index(chosen=chosen),
        "local_version": "${{ inputs.local_version }}" if trigger == "release" else _RUN.format(trigger),
        "store": store,
        "channel": channel,
        "promote": promote,
        "test_image": _OF_LINUX.format("TEST_IMAGE"),
        "save_cache": trigger == "nightly",  # a cache that others push out helps nobody: GitHub keeps 10 GB
    }
    return {
        "name": trigger,
        "on": on,
        "permissions": {},
        "concurrency": {"group": f"{trigger}-${{{{ github.ref }}}}", "cancel-in-progress": False},
        "defaults": {"run": {"shell": "bash"}},
        "jobs": {
            "plan": _plan(pieces, [step, needed], commits=commits),
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


def _first_of(name: str, *more: str, chosen: bool) -> str:
    """Return the input of a name, where there are inputs, else the repository's variable, else ``more``."""
    given = [f"inputs.{name}"] if chosen else []
    return expression(" || ".join([*given, f"vars.ROCM_WHEELS_{name.upper()}", *more]))


def _plan(pieces: Pieces, steps: Sequence[Step], *, commits: int = 1) -> Job:
    return job(
        HOSTED_RUNNER,
        15,
        [*pieces.begin(commits=commits), *steps],
        outputs={name: f"${{{{ steps.lines.outputs.{name} }}}}" for name in ("lines", "lines_count")},
    )
