"""The loop of somebody who edits a project: what the last full run found out, and what runs again by it.

A full run is a plan with a step ``develop``. It leaves a note: the command of ninja, the variables that it
needs, and what all of that depends on. While nothing but sources has changed since, hipify and ninja are all
that runs. Nothing that they do not need is imported or looked up then: that is most of what a short command
costs. Sources are looked at by git's own stat data.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from rocm_wheels.compile import variables
from rocm_wheels.core import environment_numbers, errors, files, process, progress
from rocm_wheels.core.files import write_json_file
from rocm_wheels.sources import checkout_state
from rocm_wheels.sources.git import Git, disable_private_filters

if TYPE_CHECKING:
    from rocm_wheels.models.project import Project
    from rocm_wheels.pipeline import forks
    from rocm_wheels.pipeline.request import WheelsRequest

_NOTE_FORMAT = 2
# what reaches a compiler, or decides which one that is, besides the variables that configure builds
_OTHER_VARIABLES = ("PATH", "HOME", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX")
# no hipify translates these; what belongs to hipify itself is told apart by its name
_NEVER_HIPIFIED = frozenset({".py", ".pyi", ".md", ".rst", ".yml", ".yaml", ".json", ".toml"})
_TREE_KEY_FILE = ".rocm-wheels-tree"  # compile.TREE_KEY_FILE, which costs an import of the recipes' models
_COMPILED_LINE = re.compile(r"\[\d+/\d+\] (?!Re-checking|Re-running CMake|Install the project)")

SourceStamps = Mapping[str, list[int]]  # bytes and time (ns) of each file that git calls changed


@dataclass(frozen=True)
class LoopResult:
    """What a run did: ``configured``, ``compiled`` or ``up to date``. ``python`` can import the project."""

    project: str
    action: str
    python: str
    source: str
    version: str
    hipified: int
    seconds: float

    def as_json(self) -> dict[str, object]:
        """Return it as plain values."""
        return {**vars(self), "seconds": round(self.seconds, 3)}


@dataclass(frozen=True)
class SourceChanges:
    """A checkout as git sees it: its commit, and the files that differ from it."""

    commit: str
    stamps: SourceStamps

    @classmethod
    def read(cls, source: Path, env: Mapping[str, str]) -> SourceChanges | None:
        """Ask git, in submodules with changes too; ``None`` for a folder that is no checkout."""
        if not (source / ".git").exists():
            return None
        stamps: dict[str, list[int]] = {}
        return cls(_read_changes(_make_git(source, env), "", stamps), stamps)

    def list_differences(self, stamps: SourceStamps) -> list[str]:
        """Return the files that are others than in the stamps."""
        return [path for path in {**self.stamps, **stamps} if self.stamps.get(path) != stamps.get(path)]


def _make_git(source: Path, env: Mapping[str, str]) -> Git:
    return disable_private_filters(Git(source, env, variables={"GIT_OPTIONAL_LOCKS": "0"}))


def _read_changes(git: Git, prefix: str, stamps: dict[str, list[int]]) -> str:
    """Stamp the files of a repository that differ from its commit, which is returned."""
    options = ("--porcelain=v2", "-z", "--branch", "--untracked-files=all", "--ignore-submodules=none")
    fields, commit = iter(git.fields("status", *options)), ""
    for entry in fields:
        kind, _, rest = entry.partition(" ")
        if kind == "#":
            name, _, value = rest.partition(" ")
            commit = value if name == "branch.oid" else commit
            continue
        name = rest if kind in "?!" else rest.split(" ", {"1": 7, "2": 8, "u": 9}[kind])[-1]
        path = git.directory / name
        if kind == "2":
            next(fields)  # where a renamed file was
        if kind not in "?!" and rest.split(" ", 2)[1].startswith("S") and path.is_dir():
            inner = git.in_directory(path).with_variables(**git.variables)
            stamps[prefix + name] = [int(_read_changes(inner, f"{prefix}{name}/", stamps)[:15] or "0", 16)]
        else:
            stamps[prefix + name] = _stamp_file(path, follow=False)
    return commit


def locate_loop_note(work: Path, project: str) -> Path:
    """Return the file that a full run leaves; its log lies beside."""
    return work / "develop" / f"{project}.json"


def find_loop_options(path: Path) -> tuple[dict[str, Any], str] | None:
    """Return the options that the full run with this note was given, and its command line; None: no run."""
    note = _read_note(path)
    return None if note is None else (dict(note["parameters"]), note["command"])


def read_loop_options(work: Path, project: str) -> dict[str, Any]:
    """Return the options that the last full run was given. Raises UsageError where there was none."""
    if (last := find_loop_options(locate_loop_note(work, project))) is None:
        raise errors.UsageError(
            f"{project} was not developed in {work} yet",
            tip=f"run `rocm-wheels dev {project}` first, or name its --work-dir: .rocm-wheels in dev's"
            " --source-dir",
        )
    return last[0]


def end_killed_run(work: Path) -> None:
    """End what a run that was killed left at work in a work directory: it holds the source."""
    if (work / files.GROUPS_FILE).exists():  # while a run is at work, and after a kill
        from rocm_wheels.pipeline import run

        run.end_killed_run(work)


def repeat_loop(
    path: Path,
    parameters: Mapping[str, object],
    spellings: Mapping[str, str],
    env: Mapping[str, str],
    on_line: Callable[[str], None],
) -> LoopResult | str:
    """Hipify and compile what changed since the run that left the note at ``path``.

    ``spellings``: the options of ``parameters``, as people write them. Returns why that does not do, as text,
    where a full run has to look. Raises SourceError, and BuildFailed with the compiler's own message.
    """
    begin, note = time.monotonic(), _read_note(path)
    if note is None:
        return "nothing is built here yet"
    if note["ninja"] is None:
        return "ninja alone does not do it"
    asked = _make_comparable(parameters)
    if changed := [spellings[name] for name in asked if asked[name] != note["parameters"].get(name)]:
        return f"{', '.join(sorted(changed))} changed"
    if note["variables"] != digest_build_variables(env, note["environment"]):
        return "variables of the environment changed"
    key = _read_tree_state(note)
    moved = (
        [f"the build tree {note['tree']}"] if [key.get("key"), key.get("python")] != note["tree_key"] else []
    )
    moved += [name for name, stamp in note["files"].items() if _stamp_file(name) != stamp]
    if moved:
        return f"{moved[0]} changed"
    source = Path(note["source"])
    hipified = _hipify_edits(path, note, source, env)  # which holds the checkout itself
    if isinstance(hipified, str):
        return hipified
    with checkout_state.hold_checkout(source, activity=f"dev of {note['project']}", env=env):
        action = _compile_edits(path, note, env, on_line)
        if _stamp_file(note["cache"]) != note["files"][note["cache"]]:
            return "CMake was configured again"  # whether as asked, the full run looks
    seconds = time.monotonic() - begin
    return LoopResult(
        note["project"], action, note["python"], str(source), note["version"], hipified, seconds
    )


def _hipify_edits(path: Path, note: dict[str, Any], source: Path, env: Mapping[str, str]) -> int | str:
    """Hipify where files changed that hipify reads; return how many are other ones now.

    Returns text for what a full run has to look at, or to refuse: another commit that is not hipified, a
    file that came or went, for which CMake has to run.
    """
    sources = SourceChanges.read(source, env)
    if sources is None:
        return f"{source} is no checkout"
    edits, moved = sources.list_differences(note["stamps"]), sources.commit != note["commit"]
    if not edits and not moved:
        return 0
    changed: tuple[str, ...] = ()
    script = note["hipify"]["script"]
    read = [name for name in edits if PurePosixPath(name).suffix not in _NEVER_HIPIFIED or "hipify" in name]
    own = [name for name in edits if PurePosixPath(name).is_relative_to(PurePosixPath(script or "/").parent)]
    if script is not None and (moved or read or own):
        from rocm_wheels.sources import hipify

        # that much of a recipe is all that hipify asks for
        project = cast(
            "Project",
            SimpleNamespace(
                name=note["project"],
                hipify=SimpleNamespace(**note["hipify"]),
                build=SimpleNamespace(trees=tuple(note["trees"])),
            ),
        )
        if moved and hipify.check_hipify(project, _make_git(source, env)) not in ("stale", "current"):
            return f"{sources.commit[:12]} is not hipified"
        changed = hipify.hipify_changes(project, source, env=env, python=Path(sys.executable))
        sources = SourceChanges.read(source, env) or sources
    from rocm_wheels.sources import source_names

    if source_names.digest_source_names(source, env=env) != _read_tree_state(note).get("source names"):
        return "a source file came, went or was renamed"
    note["stamps"], note["commit"] = sources.stamps, sources.commit
    write_json_file(path, note)
    return len(changed)


def _compile_edits(
    path: Path, note: Mapping[str, Any], env: Mapping[str, str], on_line: Callable[[str], None]
) -> str:
    changes: Mapping[str, str | None] = note["environment"]
    build_env = {name: value for name, value in env.items() if name not in changes}
    build_env |= {name: value for name, value in changes.items() if value is not None}
    argv = list(note["ninja"])
    if "-j" in argv and (jobs := environment_numbers.read_number(env, "MAX_JOBS")):
        argv[argv.index("-j") + 1] = str(jobs)
    log, compiled = path.with_suffix(".log"), False
    log.unlink(missing_ok=True)

    def take_line(line: str) -> None:
        nonlocal compiled
        compiled = compiled or bool(_COMPILED_LINE.match(line))
        on_line(line)

    finished = process.run_command(argv, env=build_env, log=log, on_line=take_line, check=None)
    progress.show_live_line("")
    if not finished.returncode:
        return "compiled" if compiled else "up to date"
    from rocm_wheels.compile import failure
    from rocm_wheels.sources import hipify_record

    first = failure.find_first_failure(log.read_text(encoding="utf-8", errors="replace").splitlines())
    command = failure.format_repeat_command(argv, cwd=Path(note["source"]), base=env, env=build_env)
    code = finished.returncode
    ending = f"was killed by signal {-code}" if code < 0 else f"failed with exit code {code}"
    text = failure.explain_failure(f"building {note['project']} {ending}", first, log=log, command=command)
    failed = failure.BuildFailed(text, failure=first, log=log, command=command)
    if first is not None and first.file is not None and first.line is not None:
        place = hipify_record.find_translated_line(Path(note["source"], first.file), first.line, env=env)
        if place is not None:
            failed.name_source(f"{place[0]}:{place[1]}")
    raise failed


def _read_tree_state(note: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return dict(json.loads(Path(note["tree"], _TREE_KEY_FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def _stamp_file(path: str | Path, *, follow: bool = True) -> list[int]:
    """Return bytes and time (ns) of a file, or of a link to it; nothing of one that is not there."""
    try:
        state = Path(path).stat(follow_symlinks=follow)
    except FileNotFoundError:
        return []
    return [state.st_size, state.st_mtime_ns]


def digest_build_variables(env: Mapping[str, str], changes: Mapping[str, str | None]) -> str:
    """Return a digest of the variables that decide how something is built; none can be read from it."""
    names = {name for name, value in env.items() if variables.is_configuration_variable(name, value)}
    values = {name: env.get(name) for name in sorted({*names, *_OTHER_VARIABLES, *changes})}
    return hashlib.sha256(json.dumps(values).encode("utf-8", "surrogateescape")).hexdigest()


def _make_comparable(parameters: Mapping[str, object]) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(json.dumps(dict(parameters), default=str))
    return values


def _read_note(path: Path) -> dict[str, Any] | None:
    try:
        note = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return note if isinstance(note, dict) and note.get("format") == _NOTE_FORMAT else None


def begin_loop(
    request: WheelsRequest,
    project: str,
    parameters: Mapping[str, object],
    env: Mapping[str, str],
    command: str,
    *,
    server: forks.ForkServer | None = None,
) -> LoopResult:
    """Do a full run: install what is missing, run the front end where it has to, compile, and leave a note.

    ``command`` is the line that people gave, ``server`` what forks the processes of steps. Raises what a run
    of ``build`` raises.
    """
    from rocm_wheels.models.project import load_project
    from rocm_wheels.pipeline import local_executor, outputs, plan, run, source_checks

    begin = time.monotonic()
    path = locate_loop_note(request.work, project)
    checked = plan.check_request(request, env)
    recipe, source = load_project(project), request.sources[project]
    before = SourceChanges.read(source, env)
    source_checks.hipify_stale_sources([recipe], request.sources, checked.env)
    sources = SourceChanges.read(source, env)  # what changes from now on is hipified by the next run
    how = local_executor.ExecutionOptions(server=server)
    summary = run.build_wheels(request, env, how, command, checked=checked)
    if summary.failure is not None:
        raise summary.failure
    step = find_develop_step(request, project, env)
    stamp = outputs.read_stamp(request.work / "steps", step)
    assert stamp is not None, f"{step} has ended well"
    facts = stamp.facts
    if facts["loop"] is not None and sources is not None:
        note = _make_note(request, project, sources, facts, env)
        write_json_file(path, {**note, "parameters": _make_comparable(parameters), "command": command})
    hipified = sources.list_differences(before.stamps) if sources is not None and before is not None else []
    action = "configured"
    if not facts["configured"]:
        log = (summary.records[-1] / f"{step}.log").read_text(encoding="utf-8", errors="replace")
        action = "compiled" if any(map(_COMPILED_LINE.match, log.splitlines())) else "up to date"
    seconds = time.monotonic() - begin
    return LoopResult(project, action, facts["python"], str(source), facts["version"], len(hipified), seconds)


def _make_note(
    request: WheelsRequest,
    project: str,
    sources: SourceChanges,
    facts: Mapping[str, Any],
    env: Mapping[str, str],
) -> dict[str, Any]:
    from rocm_wheels.models.project import load_project
    from rocm_wheels.pipeline.facts import list_front_end_files

    recipe, source, loop = load_project(project), request.sources[project], facts["loop"]
    tree = Path(loop["tree"])
    cache = str(tree / "CMakeCache.txt")
    files = [*loop["files"], cache, *map(str, list_front_end_files(recipe, source))]
    key = json.loads((tree / _TREE_KEY_FILE).read_text(encoding="utf-8"))
    return {
        "format": _NOTE_FORMAT,
        "project": project,
        "source": str(source),
        "version": facts["version"],
        "python": facts["python"],
        "ninja": loop["ninja"],
        "environment": loop["environment"],
        "variables": digest_build_variables(env, loop["environment"]),
        "tree": str(tree),
        "tree_key": [key["key"], key["python"]],
        "cache": cache,
        "files": {name: _stamp_file(name) for name in files},
        "trees": list(recipe.build.trees),
        "hipify": {
            "by": recipe.hipify.by,
            "script": recipe.hipify.script,
            "reason": recipe.hipify.reason,
            "variables": None,
        },
        "commit": sources.commit,
        "stamps": sources.stamps,
    }


def find_develop_step(request: WheelsRequest, project: str, env: Mapping[str, str]) -> str:
    """Return the id of the step that compiles a project in its tree."""
    from rocm_wheels.pipeline.facts import make_python_tag
    from rocm_wheels.pipeline.step import develop_step_id
    from rocm_wheels.sdk import build_environment

    tag = make_python_tag(build_environment.query_python_version(request.sdk.python, env))
    return develop_step_id(project, tag)


def compose_shell_environment(request: WheelsRequest, project: str, env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the step that compiles a project, with the Python that imports it in front.

    Raises UsageError where the build environment is not there as the request wants it.
    """
    from rocm_wheels.pipeline import plan
    from rocm_wheels.pipeline.planner import Planner
    from rocm_wheels.pipeline.step import NotYet
    from rocm_wheels.pipeline.step_kinds import develop

    planned = plan.plan_run(plan.check_request(request, env))
    planner = Planner(planned.steps, planned.facts, planned.plan.steps)
    step = planned.steps[find_develop_step(request, project, env)]
    try:
        build = planner.plan_step_build(step)
    except NotYet as unknown:
        raise errors.UsageError(
            f"the build environment of {project} is not up to date: {unknown}",
            tip=f"run `rocm-wheels dev {project}` again",
        ) from None
    target = develop.locate_develop_environment(project, planner.ready, planned.facts.workspace)
    path = f"{target.bin}{os.pathsep}{build.environment['PATH']}"
    return {**build.environment, "PATH": path, "VIRTUAL_ENV": str(target.prefix)}
