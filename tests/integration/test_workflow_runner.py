"""What runs our workflows without GitHub: it knows what they use, and refuses all else."""

from __future__ import annotations

import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest
from workflow_actions import Services
from workflow_expressions import PURE, Optional, Unknown, condition, evaluate, fill
from workflow_runner import Runner

CONTEXTS = {
    "inputs": {"line": "2.13", "promote": True, "store": "s3://bucket"},
    "needs": {"lock": {"result": "success", "outputs": Optional(count="3", rows='{"include": [{"a": 1}]}')}},
    "vars": Optional(),
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("inputs.line", "2.13"),
        ("'it''s'", "it's"),
        ("inputs.promote && vars.IMAGE || ''", ""),
        ("inputs.line == '2.13' && needs.lock.result != 'failure'", True),
        ("!(inputs.line == '2.12') && true", True),
        ("needs.lock.outputs.count > 0", True),
        ("needs.lock.outputs.nothing > 0", False),
        ("startsWith(inputs.store, 'S3://')", True),
        ("contains('torch apex', 'apex')", True),
        ("fromJSON(needs.lock.outputs.rows)", {"include": [{"a": 1}]}),
        ("'ABC' == 'abc'", True),
        ("'' == 0", True),
        ("vars.NOTHING", ""),
    ],
)
def test_expressions(text: str, value: Any) -> None:
    assert evaluate(text, CONTEXTS, PURE) == value


@pytest.mark.parametrize(
    "text",
    [
        *("inputs.lines", "matrix.a", "format('{0}', 1)", "inputs.line ==", "inputs.line 'x'"),
        *("fromJSON('')", "a[0]", "1 ~ 2"),
    ],
)
def test_what_is_not_known_is_refused(text: str) -> None:
    with pytest.raises(Unknown):
        evaluate(text, CONTEXTS, PURE)


def test_texts_and_conditions() -> None:
    assert fill("a-${{ inputs.line }}-${{ inputs.promote }}", CONTEXTS, PURE) == "a-2.13-true"
    assert fill({"a": ["${{ inputs.promote }}"]}, CONTEXTS, PURE) == {"a": [True]}
    status: dict[str, Any] = {**PURE, "success": lambda: False, "cancelled": lambda: False}
    assert not condition(None, CONTEXTS, status)
    assert not condition("${{ inputs.promote }}", CONTEXTS, status)
    assert condition("${{ !cancelled() && inputs.promote }}", CONTEXTS, status)


HEAD = "name: x\n\non:\n  workflow_dispatch:\n    inputs: {}\n\npermissions: {}\n\njobs:\n"
JOB = """\
  one:
    runs-on: here
    timeout-minutes: 1
    permissions: {contents: read}
    steps:
"""
UPLOAD = f"actions/upload-artifact@{'0' * 40}"


def run(tmp_path: Path, steps: str, job: str = JOB, **files: str) -> tuple[str, Runner]:
    (tmp_path / "w.yml").write_text(HEAD + job + textwrap.indent(textwrap.dedent(steps), " " * 6))
    work = tmp_path / "github" / "machine-tool"
    for name, text in files.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(text)
    work.mkdir(parents=True, exist_ok=True)
    services = Services(tmp_path / "github", tmp_path, {})
    runner = Runner(tmp_path, services, {"here"}, {"PATH": "/usr/bin:/bin"})
    return runner.start("w.yml", {}), runner


def test_steps_hand_on_outputs_and_paths_and_end_at_a_failure(tmp_path: Path) -> None:
    result, runner = run(
        tmp_path,
        """
        - {name: a, id: a, run: 'printf "x=1\\ny<<e\\n2\\n3\\ne\\n" >> "$GITHUB_OUTPUT"'}
        - {name: p, run: 'echo /opt >> "$GITHUB_PATH"'}
        - {name: b, env: {X: "${{ steps.a.outputs.y }}"}, run: 'echo "$X $PATH"; false | true'}
        - {name: c, run: exit 1}
        - {name: d, if: "${{ !cancelled() && steps.a.outcome == 'success' }}", run: echo still}
        """,
    )
    ran = runner.jobs["w.yml/one"]
    assert result == ran.result == "failure"
    assert [outcome for _, outcome, _ in ran.steps] == ["success", "success", "failure", "skipped", "success"]
    assert "2\n3 /opt:/usr/bin:/bin" in ran.said("b")  # and a pipe fails where a part of it does


def test_a_job_goes_on_after_a_step_that_may_fail(tmp_path: Path) -> None:
    steps = """
        - {id: a, continue-on-error: "${{ github.event_name != '' }}", run: exit 1}
        - {name: b, if: "${{ steps.a.outcome == 'failure' }}", run: echo instead}
        - {name: c, continue-on-error: "${{ github.event_name == '' }}", run: exit 1}
    """
    result, runner = run(tmp_path, steps)
    outcomes = [outcome for _, outcome, _ in runner.jobs["w.yml/one"].steps]
    assert result == "failure" and outcomes == ["failure", "success", "failure"]


ACTION = """\
name: ours
description: x
inputs: {who: {default: nobody}, more: {default: given}}
outputs: {greeting: {value: "${{ steps.b.outputs.x }}"}}
runs:
  using: composite
  steps:
  - {name: a, if: "${{ inputs.more == '' }}", shell: bash, run: exit 1}
  - name: b
    id: b
    shell: bash
    env: {W: "${{ inputs.who }}"}
    run: 'echo "x=hi $W" >> "$GITHUB_OUTPUT"; echo /opt >> "$GITHUB_PATH"'
"""
CHECKOUT = f"- {{uses: 'actions/checkout@{'0' * 40}', with: {{persist-credentials: false}}}}\n"
CALL = "- {id: c, uses: ./.github/actions/ours%s}\n"


def run_action(tmp_path: Path, steps: str, action: str = ACTION) -> tuple[str, Runner]:
    place = tmp_path / ".github" / "actions" / "ours" / "action.yml"
    place.parent.mkdir(parents=True)
    place.write_text(action)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    return run(tmp_path, steps)


def test_an_action_of_ours_has_inputs_and_outputs_once_it_is_checked_out(tmp_path: Path) -> None:
    after = "- {name: d, env: {X: '${{ steps.c.outputs.greeting }}'}, run: 'echo $X $PATH'}\n"
    result, runner = run_action(tmp_path / "1", CHECKOUT + CALL % ", with: {who: you}" + after)
    assert result == "success" and "hi you /opt:/usr/bin:/bin" in runner.jobs["w.yml/one"].said("d")
    assert ("ours", "") in {where[:2] for where in runner.lines}
    result, runner = run_action(
        tmp_path / "2", CHECKOUT + CALL % ", with: {more: ''}" + "- {name: d, run: echo}\n"
    )
    assert [outcome for _, outcome, _ in runner.jobs["w.yml/one"].steps] == ["success", "failure", "skipped"]
    assert run_action(tmp_path / "3", CALL % "")[0] == "failure"  # nothing is checked out


@pytest.mark.parametrize(
    ("call", "action"),
    [
        (", with: {whom: you}", ACTION),
        ("", ACTION.replace("inputs.more", "vars.MORE")),
        ("", ACTION.replace("shell: bash, run: exit", "run: exit")),
        ("", ACTION.replace("composite", "node24")),
    ],
)
def test_an_action_of_ours_gets_what_github_gives_it_and_no_more(
    call: str, action: str, tmp_path: Path
) -> None:
    with pytest.raises(Unknown):
        run_action(tmp_path, CHECKOUT + CALL % call, action)


STEP = "- {{uses: '{}', with: {{name: '{}', path: '{}', if-no-files-found: error}}}}\n"


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (STEP.format(UPLOAD, "a", "f.txt") * 2, "the name a is there already"),
        (STEP.format(UPLOAD, "a/b", "f.txt"), "cannot be 'a/b'"),
        (STEP.format(UPLOAD, "a", "g*"), "no files were found"),
        (f"- {{uses: 'actions/download-artifact@{'0' * 40}', with: {{name: b}}}}", "'b' not found"),
    ],
)
def test_artifacts_have_the_rules_of_the_real_ones(steps: str, said: str, tmp_path: Path) -> None:
    result, runner = run(tmp_path, steps, **{"f.txt": "x"})
    assert result == "failure"
    assert said in "".join(text for *_, text in runner.jobs["w.yml/one"].steps)


@pytest.mark.parametrize(
    ("steps", "job"),
    [
        ("- {uses: 'somebody/action@v1'}", JOB),
        ("- {run: echo, shell: pwsh}", JOB),
        (f"- {{uses: '{UPLOAD}', with: {{name: a, path: b, archive: false}}}}", JOB),
        ("- {run: echo}", JOB.replace("permissions", "services")),
        ("- {run: echo}", JOB.replace("    steps:", "    container: {image: ubuntu}\n    steps:")),
        ("- {run: 'echo A=1 >> \"$GITHUB_ENV\"'}", JOB),
        ("- {run: echo}", JOB.replace("    steps:", "    needs: [one]\n    steps:")),
    ],
)
def test_what_it_does_not_know_it_does_not_run(steps: str, job: str, tmp_path: Path) -> None:
    with pytest.raises(Unknown):
        run(tmp_path, steps, job)


def test_a_job_that_no_machine_takes_is_queued_and_what_needs_it_waits(tmp_path: Path) -> None:
    after = JOB.replace("  one:", "  two:").replace(
        "    runs-on", "    needs: [one]\n    if: ${{ !cancelled() }}\n    runs-on"
    )
    steps = "- {run: echo}"
    job = JOB.replace("here", "elsewhere") + f"      {steps}\n" + after
    result, runner = run(tmp_path, steps, job)
    results = {place: ran.result for place, ran in runner.jobs.items()}
    assert result == "queued" and results == {"w.yml/one": "queued", "w.yml/two": "waiting"}
    assert "no machine has the label" in runner.jobs["w.yml/one"].said("runner")


def test_what_is_asked_of_others_is_noted_and_never_done(tmp_path: Path) -> None:
    role = f"aws-actions/configure-aws-credentials@{'0' * 40}"
    steps = f"""
        - {{uses: '{role}', with: {{role-to-assume: my-role, aws-region: eu-central-1}}}}
        - {{uses: 'actions/attest-build-provenance@{"0" * 40}', with: {{subject-path: 'wheels/*.whl'}}}}
        - {{uses: '{role}', with: {{role-to-assume: '', aws-region: eu-central-1}}}}
    """
    result, runner = run(tmp_path, steps, **{"wheels/a.whl": "", "wheels/b.whl": ""})
    assert result == "failure"  # a role that is not set is none
    assert runner.services.asked == ["role my-role in eu-central-1", "attested 2 files"]
