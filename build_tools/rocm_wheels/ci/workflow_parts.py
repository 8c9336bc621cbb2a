"""Steps and jobs of workflows, what all of them have, and their text as YAML."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from rocm_wheels.core import UsageError
from rocm_wheels.models import UNRESOLVED_COMMIT, ActionsTable


@dataclass(frozen=True)
class Noted:
    """A text, and a comment behind it."""

    text: str
    note: str


def as_yaml(value: Mapping[str, Any], header: Sequence[str]) -> str:
    """Return a mapping as YAML below a comment; jobs and other large parts stand apart by an empty line."""
    lines = [f"# {line}".rstrip() for line in header]
    for key, inner in value.items():
        if len(lines) > len(header) and key != "run-name":
            lines.append("")
        lines.extend(_apart(key, inner) if key == "jobs" else _entry(key, inner))
    return "\n".join(lines) + "\n"


def _apart(key: str, jobs: Mapping[str, Any]) -> Iterator[str]:
    yield f"{key}:"
    for number, (name, job) in enumerate(jobs.items()):
        if number:
            yield ""
        yield from _indented(_entry(name, job))


def _entry(key: str, value: Any) -> Iterator[str]:
    name = _scalar(key) if key != "on" else key  # of YAML 1.1 alone `on` is a boolean; GitHub reads 1.2
    if isinstance(value, Mapping) and value:
        yield f"{name}:"
        for inner, one in value.items():
            yield from _indented(_entry(inner, one))
    elif _is_list(value) and value:
        if all(isinstance(one, (str, int)) for one in value):
            yield f"{name}: [{', '.join(_scalar(one, flow=True) for one in value)}]"
            return
        yield f"{name}:"
        for one in value:
            yield from _item(one)
    else:
        yield f"{name}:{_after(value)}"


def _item(value: Any) -> Iterator[str]:
    first, *rest = [line for key, one in value.items() for line in _entry(key, one)]
    yield f"  - {first}"
    yield from (f"    {line}" if line else "" for line in rest)


def _indented(lines: Iterator[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)


def _after(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Noted):
        return f" {_scalar(value.text)} # {value.note}"
    if isinstance(value, Mapping):
        return " {}"
    return " []" if _is_list(value) else f" {_scalar(value)}"


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _scalar(value: str | int | bool, *, flow: bool = False) -> str:
    """Return a scalar as it is where YAML reads the same again, else in quotes."""
    if not isinstance(value, str):
        return str(value).lower()
    before, after = ("[", "]") if flow else ("k: ", "")
    try:
        read = yaml.safe_load(f"{before}{value}{after}")
    except yaml.YAMLError:
        read = None
    plain = read == ([value] if flow else {"k": value})
    return value if plain and value.isprintable() else _quoted(value)


def _quoted(value: str) -> str:
    if not value.isprintable() or "'" in value:
        return f'"{"".join(map(_escaped, value))}"'
    return f"'{value}'" if '"' in value or "\\" in value else f'"{value}"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08x}"


Step = dict[str, Any]
Job = dict[str, Any]
Workflow = dict[str, Any]

TOOL_PYTHON = "3.12"  # what the tool itself runs with where nothing is built or tested
READ = {"contents": "read"}
STORE = {"contents": "read", "id-token": "write"}
STORE_AND_ATTEST = {**STORE, "attestations": "write"}
GIVEN_BY_DIGEST = "zizmor: ignore[unpinned-images] by digest, where it is set"
AS_ROOT = "--user=0:0"  # whatever user an image names, the workspace is the runner's: actions/checkout#956
_WHY = {
    "id-token": "for credentials of the store (OIDC), and to sign attestations",
    "attestations": "to keep the provenance of wheels",
}
CCACHE = "${{ github.workspace }}/.ccache"
CACHE_KEY = "ccache-${{ inputs.line }}-${{ inputs.platform }}-"


def expression(words: str) -> str:
    """Return an expression of GitHub: what stands between the braces."""
    return f"${{{{ {words} }}}}"


def uses(table: ActionsTable, name: str, /, **words: str | bool | int) -> Step:
    """Return a step that uses an action (``owner/repository`` or a path below) at its commit.

    Underscores in names of inputs stand for hyphens. Raises UsageError for an action that the table lacks.
    """
    repository = "/".join(name.split("/")[:2])
    action = table.actions.get(repository)
    if action is None:
        raise UsageError(f"data/actions.yaml has no {repository}", tip="add it, with the commit of a release")
    note = (
        action.version
        if action.is_resolved
        else f"{action.version}, {UNRESOLVED_COMMIT}: nobody has read its commit"
    )
    step: Step = {"uses": Noted(f"{name}@{action.sha}", note)}
    if words:
        step["with"] = {key.replace("_", "-"): value for key, value in words.items()}
    return step


def run(name: str, command: str, env: Mapping[str, str] | None = None, **more: str) -> Step:
    """Return a step that runs a command; ``more`` are ``id`` and ``if_``. ``env`` has what it is given."""
    step: Step = {"name": name}
    step.update({key.rstrip("_"): value for key, value in more.items()})
    if env:
        step["env"] = dict(env)
    return {**step, "run": command}


def when(step: Step, condition: str) -> Step:
    """Return a step that is done only under a condition."""
    name = {"name": step["name"]} if "name" in step else {}
    return {**name, "if": condition, **{key: value for key, value in step.items() if key != "name"}}


class Pieces:
    """Steps that several workflows have, made from the table of actions."""

    def __init__(self, table: ActionsTable) -> None:
        self._table = table

    def uses(self, name: str, /, **words: str | bool | int) -> Step:
        """Return a step that uses an action."""
        return uses(self._table, name, **words)

    def begin(
        self,
        python: str = TOOL_PYTHON,
        *,
        image: str | None = None,
        s3: bool = False,
        builds: bool = False,
        commits: int = 1,
    ) -> list[Step]:
        """Return the first steps of a job: our files, a Python, and rocm-wheels on PATH.

        ``image`` is the input that names the container; where there is one, its Python is taken. ``s3``: with
        what stores need; ``builds``: with a compiler cache, which machines need not have; ``commits``: with
        so many of them, 0 for all.
        """
        given: dict[str, str | bool | int] = {"persist_credentials": False}
        if commits != 1:
            given["fetch_depth"] = commits
        pythons = self.uses("actions/setup-python", python_version=python)
        if image is not None:
            pythons = when(pythons, expression(f"inputs.{image} == ''"))
        more = f"{' --tests' if s3 else ''}{' --compiler-cache' if builds else ''}"
        return [
            self.uses("actions/checkout", **given),
            {"id": "python", **pythons},
            run("rocm-wheels", f"python3 build_tools/quickstart.py setup{more} --github-path"),
        ]

    def upload(self, name: str, path: str, *, days: int | None = None) -> Step:
        """Return a step that keeps files for later jobs; none is an error.

        A job that failed after it may be run again: what it kept then is replaced, else it would be refused.
        """
        more: dict[str, int] = {} if days is None else {"retention_days": days}
        return self.uses(
            "actions/upload-artifact",
            name=name,
            path=path,
            if_no_files_found="error",
            compression_level=0,
            overwrite=True,
            **more,
        )

    def download(self, name: str, path: str = ".") -> Step:
        """Return a step that fetches what one job kept."""
        return self.uses("actions/download-artifact", name=name, path=path)

    def download_all(self, pattern: str, path: str) -> Step:
        """Return a step that fetches what several jobs kept, into one folder."""
        return self.uses("actions/download-artifact", pattern=pattern, path=path, merge_multiple=True)

    def credentials(self) -> Step:
        """Return a step that gets credentials of a store in S3 for this job (OIDC), and none for others."""
        step = self.uses(
            "aws-actions/configure-aws-credentials",
            role_to_assume="${{ vars.ROCM_WHEELS_STORE_ROLE }}",
            aws_region="${{ vars.ROCM_WHEELS_STORE_REGION }}",
        )
        return when(step, "${{ startsWith(inputs.store, 's3://') }}")

    def restore_cache(self) -> Step:
        """Return a step that reads the compiler cache: pull requests from forks may, too."""
        return self.uses(
            "actions/cache/restore",
            path=".ccache",
            key=CACHE_KEY + "${{ github.run_id }}",
            restore_keys=CACHE_KEY,
        )

    def save_cache(self) -> Step:
        """Return a step that keeps the compiler cache, where the caller says that its code is trusted."""
        step = self.uses(
            "actions/cache/save",
            path=".ccache",
            key=CACHE_KEY + "${{ github.run_id }}-${{ github.run_attempt }}",
        )
        return when(step, "${{ !cancelled() && inputs.save_cache }}")


def job(
    runs_on: str,
    minutes: int | str,
    steps: Sequence[Step],
    *,
    permissions: Mapping[str, str] = READ,
    needs: Iterable[str] = (),
    **more: Any,
) -> Job:
    """Return a job; ``more`` are its other keys (``if_``, ``strategy``, ``outputs``, ``container``, …)."""
    words = {key.rstrip("_"): value for key, value in more.items()}
    made: Job = {"name": words.pop("name")} if "name" in words else {}
    if wanted := list(needs):
        made["needs"] = wanted
    if "if" in words:
        made["if"] = words.pop("if")
    made |= {"runs-on": runs_on, "timeout-minutes": minutes, "permissions": _explained(permissions)}
    return {**made, **words, "steps": list(steps)}


def _explained(permissions: Mapping[str, str]) -> dict[str, Any]:
    return {name: Noted(level, _WHY[name]) if name in _WHY else level for name, level in permissions.items()}


def each(output: str, *, of: str) -> dict[str, Any]:
    """Return the strategy of a job that there is once a row of an output of the job ``of``."""
    return {"fail-fast": False, "matrix": expression(f"fromJSON(needs.{of}.outputs.{output})")}


def one_after_another(group: str) -> dict[str, Any]:
    """Return the `concurrency` of what must not be done twice at a time, and must be done each time.

    Without `queue`, GitHub lets one wait and cancels it when another comes.
    """
    return {"group": group, "cancel-in-progress": False, "queue": "max"}


def inputs(said: Mapping[str, tuple[str, Any]], *, by_hand: bool = False) -> dict[str, Any]:
    """Return the inputs of a workflow: descriptions and defaults by name; ... says that there is none."""
    made: dict[str, Any] = {}
    for name, (about, default) in said.items():
        kind = "boolean" if isinstance(default, bool) else "string"
        one: dict[str, Any] = {"description": about, "type": kind, "required": default is ...}
        if isinstance(default, tuple) and by_hand:
            one |= {"type": "choice", "required": True, "options": list(default)}
        elif default is not ...:
            one["default"] = default
        made[name] = one
    return made


def calling(
    workflow: str, given: Mapping[str, str | bool], permissions: Mapping[str, str], **more: Any
) -> Job:
    """Return a job that calls another workflow of ours."""
    words = {key.rstrip("_"): value for key, value in more.items()}
    return {
        **words,
        "permissions": _explained(permissions),
        "uses": f"./.github/workflows/{workflow}",
        "with": dict(given),
    }
