"""``build`` and ``configure``: configure a project's tree; build, check and keep its wheel.

The wheels that it is built against are installed first; what a compiler cache did is counted, recorded,
and compared with what is asked of it. What the wheel says of its origin is put in when it is packaged: the
stamp of the build has what only the build knows of that.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from rocm_wheels import __version__
from rocm_wheels.compile import build_request, compiler_cache, frontend, sdk_tree
from rocm_wheels.compile.failure import BuildFailed, list_error_places
from rocm_wheels.core import errors, process, shell
from rocm_wheels.core.log import log_note, log_warning
from rocm_wheels.models.project import Project, load_project
from rocm_wheels.pipeline import (
    build_environment,
    packaging,
    provided_wheel_checks,
    provided_wheels,
    status,
    wheel_checks,
)
from rocm_wheels.pipeline.outputs import OutputFile, StepStamp, write_stamp
from rocm_wheels.pipeline.planner import PlannedBuild, Planner, decide_verdict, select_configure_inputs
from rocm_wheels.pipeline.step import Step, configure_step_id
from rocm_wheels.pipeline.step_run import StepRun
from rocm_wheels.sources import checkout_state, hipify_record, trees

if TYPE_CHECKING:
    from rocm_wheels.audit import audited_wheel
    from rocm_wheels.wheels.sbom import WheelParts

_MOST_ERROR_PLACES = 50  # of a build that fails: the translation of each is read
_MOST_NINJAS = 100  # that are recorded of a build
# what a repair mends, or refuses: of a wheel as it was built they are no faults yet
_MENDED_BY_REPAIR = {"executable-stack", "needed-libraries", "elf-tag-too-old", "run-paths"}


def settle_build(planner: Planner, step: Step, inputs: dict[str, str]) -> Step:
    """Return the step with its inputs, estimate, command and environment, as far as they are known."""
    identity = planner.facts.trees[str(step.project)].identity
    inputs |= {"commit": identity.commit, "sources": identity.tree}
    targets = planner.known_targets() if load_project(str(step.project)).has_device_code else ()
    if targets:
        inputs["PYTORCH_ROCM_ARCH"] = ";".join(targets)
    planned = planner.plan_step_build(step)
    command = _make_build_command(planner, step, planned.request)
    step = decide_verdict(planner, step, dict(planned.inputs), command=command)
    if step.verdict == "skip" and planner.facts.request.clean:
        step = replace(step, verdict="run", why="--clean")
    changes = shell.compare_environments(planned.base, planned.environment)
    return replace(step, environment=shell.redact_environment(changes))


def settle_configure(planner: Planner, step: Step, inputs: dict[str, str]) -> Step:
    """Return the step with the inputs of its build that CMake reads."""
    planned = planner.plan_step_build(step)
    inputs |= select_configure_inputs(planned.inputs)
    return decide_verdict(planner, step, inputs, command=_make_build_command(planner, step, planned.request))


def _make_build_command(planner: Planner, step: Step, request: build_request.BuildRequest) -> str:
    """Return the command line of a build's front end, as it can be pasted into a shell."""
    workspace = planner.facts.workspace
    argv = frontend.make_front_end_command(
        request,
        request.folder,
        python=build_environment.find_project_layer(str(step.project), planner.ready, workspace).python,
        out_dir=workspace.fresh_wheels / step.id,
        checked=_is_checked_before(planner, step),
    )
    return shell.format_command(argv, cwd=request.folder)


def _is_checked_before(planner: Planner, step: Step) -> bool:
    """Tell whether another step has looked that what a build requires is there: the one that configures."""
    return step.kind == "build" and configure_step_id(str(step.project), planner.facts) in planner.steps


def install_needed_wheels(step_run: StepRun, project: Project) -> None:
    """Bring the wheels that a project is built against into the build environment.

    Raises UsageError for a given one that, when it is imported there, proves not to fit: it stays installed,
    for others may be compiled against it at this moment, and each build against it asks again.
    """
    facts, ready = step_run.facts, step_run.ready
    for name in project.build.after:
        other, given = load_project(name), facts.python.provided.get(name)
        if facts.builds_project(name):
            if other.build.installed_for_others:
                stamp = facts.done[step_run.planner.find_build_step(step_run.step, name)].stamp
                _install_wheel(step_run, other, Path(stamp.outputs[0].path), str(stamp.facts["content"]))
        elif given is not None and given.wheel is not None:
            _install_wheel(step_run, other, given.wheel, given.content)
            installed = provided_wheels.inspect_installed_wheel(
                other, ready, facts.request.platform, facts.workspace, facts.env
            )
            assert installed is not None, f"{given.wheel} was installed"
            # the lock was looked for in the file: the same content may have been installed without one
            installed = replace(installed, lock=given.lock)
            if faults := provided_wheel_checks.find_project_misfits(
                project, installed, facts, step_run.planner.find_targets()
            ):
                text = "\n  ".join(faults)
                raise errors.UsageError(
                    f"{given.describe()} was installed, and cannot be built against:\n  {text}"
                )


def _install_wheel(step_run: StepRun, project: Project, wheel: Path, content: str) -> None:
    """Install a wheel, in place of another one of its project, unless that very one is installed."""
    ready, facts = step_run.ready, step_run.facts
    with build_environment.hold_environment(ready, facts.workspace, purpose=step_run.step.id):
        build_environment.install_built_wheel(
            ready, wheel, content, distribution=project.distribution, env=facts.env
        )


@dataclass
class NinjaWatch:
    """Looks at the lines of a build, and records when a ninja has done the first of its commands."""

    step_run: StepRun
    _done: int = 0
    _begun: int = 0

    def read_line(self, line: str) -> None:
        """Take a line of a program's output, which is shown as well."""
        self.step_run.echo_line(line)
        if (count := status.parse_ninja_count(line)) is None:
            return
        if (count.done <= self._done or not self._done) and self._begun < _MOST_NINJAS:
            self._begun += 1
            self.step_run.record_event("ninja-begun", done=count.done, commands=count.commands)
        self._done = count.done


@dataclass(frozen=True)
class ProjectBuild:
    """The build of a step's project. ``cache_uses``: what a compiler cache did, a count each time."""

    step_run: StepRun
    cache_uses: list[compiler_cache.CacheStatistics] = field(default_factory=list)

    @cached_property
    def project(self) -> Project:
        """The project."""
        return load_project(str(self.step_run.step.project))

    @cached_property
    def planned(self) -> PlannedBuild:
        """Request, environment and inputs."""
        return self.step_run.planner.plan_step_build(self.step_run.step)

    @contextmanager
    def hold_source(self) -> Iterator[None]:
        """Hold the source tree; what a build that was killed left changed in it is put back."""
        source, env = self.step_run.facts.request.sources[self.project.name], self.step_run.facts.env
        with checkout_state.hold_checkout(source, activity=self.step_run.step.id, env=env):
            trees.restore_links(source, env)
            yield

    @contextmanager
    def enter_environment(self) -> Iterator[dict[str, str]]:
        """Yield the environment of the compilers, with what a cache needs; what that did is counted.

        The counts go into the record also when the build fails.
        """
        facts, environment = self.step_run.facts, dict(self.planned.environment)
        if self.step_run.jobs is not None:
            environment["MAX_JOBS"] = environment["CMAKE_BUILD_PARALLEL_LEVEL"] = str(self.step_run.jobs)
        if (cache := facts.cache) is None:
            yield environment
            return
        root = facts.workspace.root
        base = compiler_cache.find_base_folder([root, *facts.request.sources.values()])
        with compiler_cache.open_cache_session(
            cache, environment, root / "compiler-cache", base
        ) as cache_variables:
            environment |= cache_variables
            before = compiler_cache.read_statistics(cache, environment)
            try:
                yield environment
            finally:
                after = compiler_cache.read_statistics(cache, environment)
                use = after.subtract(before)
                self.cache_uses.append(use)
                if use.cacheable:
                    log_note(use.text)
                self.step_run.record_event(
                    "cache",
                    kind=cache.kind,
                    before=before.as_record(),
                    after=after.as_record(),
                    host=asdict(use.host),
                    device=asdict(use.device),
                    rate=use.rate,
                )

    def make_front_end(self, environment: Mapping[str, str], *, editable: bool = False) -> frontend.FrontEnd:
        """Return the project's own build in an environment; who listens is the record of this run."""
        step_run, ready, facts, preloads = self.step_run, self.step_run.ready, self.step_run.facts, None
        request = replace(self.planned.request, editable=editable)
        if self.project.checks.rocm_init:
            if (prefix := ready.sdk.prefix) is not None:
                preloads = sdk_tree.find_preloads(request.platform, prefix.find_library)
            else:
                preloads = sdk_tree.ask_preloads(ready.environment.python, request.platform, facts.env)
            if text := preloads.warning():
                log_warning(text)

        def ran(argv: list[str], env: Mapping[str, str], finished: process.FinishedProcess) -> None:
            changes = shell.compare_environments(self.planned.base, env)
            step_run.record_command(argv, finished, cwd=request.folder, changes=changes)

        return frontend.FrontEnd(
            request,
            base=facts.env,
            env=environment,
            python=build_environment.find_project_layer(self.project.name, ready, facts.workspace).python,
            python_tag=ready.python_tag,
            out_dir=facts.workspace.fresh_wheels / step_run.step.id,
            log=step_run.log,
            preloads=preloads,
            clean=facts.request.clean,
            checked=_is_checked_before(step_run.planner, step_run.step),
            on_line=NinjaWatch(step_run).read_line,
            ran=ran,
            restore=partial(trees.restore_links, request.source, facts.env),
        )


def run_configure(step_run: StepRun) -> None:
    """Run the front end of a build until CMake has configured its tree, in which the build goes on later.

    Raises BuildFailed when CMake fails, or goes on without what was asked for. The source is held meanwhile.
    """
    build = ProjectBuild(step_run)
    with build.hold_source():
        environment = {**build.planned.environment, "MAX_JOBS": "1"}  # what compiles is ended at once
        build.make_front_end(environment).configure()
    step_run.record_success()


def run_build(step_run: StepRun) -> None:
    """Build a project's wheel, check it, and keep it for the steps that package it.

    Raises BuildError, AuditError and what their causes raise. The source tree is held meanwhile.
    """
    build = ProjectBuild(step_run)
    with build.hold_source():
        packaging.refuse_foreign_wheels(step_run)  # at once, what delivering would be refused for hours later
        _build_wheel(step_run, build)


def _build_wheel(step_run: StepRun, build: ProjectBuild) -> None:
    from rocm_wheels.package import sbom
    from rocm_wheels.pipeline import build_statement
    from rocm_wheels.wheels import dist_info

    project, planned, facts = build.project, build.planned, step_run.facts
    if planned.attention is not None:
        log_note(f"flash attention: {planned.attention}")
    install_needed_wheels(step_run, project)
    began = build_statement.format_moment()
    wheel = _run_front_end(step_run, build)
    finished = build_statement.format_moment()

    triton, rocm = planned.request.triton_requirement, planned.request.rocm_requirement
    requirements = (*([triton] if triton and project.checks.requires_rocm else []), *planned.pins)
    # an installed ROCm is no package: it is required of the system
    serves_all, sdk = project.serves_every_family(planned.request.platform), step_run.ready.sdk
    needs_rocm = (project.has_device_code or project.checks.requires_rocm) and not serves_all
    external = [dist_info.format_external_rocm(sdk.version)] if sdk.prefix is not None and needs_rocm else []
    with suppress(errors.DataError):  # the checks say more of it
        sbom.require_pins(wheel.path, (*planned.pins, *([rocm] if rocm else [])), external)
    report = _verify_wheel(step_run, build, wheel, requirements)
    content = sbom.digest_record(report.record)

    parts, identity = _list_parts(step_run, build), facts.trees[project.name].identity
    moment = build_statement.BuildMoment(
        step_run.record.folder.name,
        began,
        finished,
        hits=sum(use.hits for use in build.cache_uses),
        cacheable=sum(use.cacheable for use in build.cache_uses),
    )
    locked = facts.locked and sbom.digest_lock_part(facts.locked.lock, project.name)
    (kept,) = step_run.keep_files([wheel.path])
    output, targets = OutputFile.from_path(kept, report.sha256), list(report.targets)
    step_run.record_success(
        (output,),
        version=wheel.version,
        targets=targets,
        content=content,
        lock=locked or "",
        requirements=list(requirements),
        parts=asdict(parts),
        commit=identity.source or identity.commit,
        changed=identity.tree if identity.dirty else None,
        predicate=build_statement.describe_build(step_run, planned, parts, moment),
    )
    configure = configure_step_id(project.name, facts)
    if configure in step_run.planner.steps:  # the wheel came out of a tree that is as its inputs say
        inputs = select_configure_inputs(step_run.known_inputs)
        write_stamp(facts.workspace.steps, StepStamp(configure, inputs, (), {}))
    # not what people install yet: the steps that package it deliver that
    step_run.record_event(
        "built",
        path=output.path,
        size=output.size,
        sha256=output.sha256,
        project=project.name,
        version=wheel.version,
        targets=targets,
        content=content,
    )


def _run_front_end(step_run: StepRun, build: ProjectBuild) -> frontend.BuiltWheel:
    """Build the wheel; keep ninja's own record of it in the folder of the run: the log that changed last."""
    request, began = build.planned.request, time.monotonic()

    def list_ninja_logs() -> dict[Path, int]:
        folders = [request.folder / name for name in build.project.build.trees]
        logs = [
            log for tree in folders for log in (*tree.glob(".ninja_log"), *tree.glob("temp.*/.ninja_log"))
        ]
        return {log: log.stat().st_mtime_ns for log in logs}

    older = list_ninja_logs()
    try:
        with build.enter_environment() as environment:
            return build.make_front_end(environment).build()
    except BuildFailed as failed:
        _name_error_sources(step_run, request, failed)
        raise
    finally:
        changed = {log: time for log, time in list_ninja_logs().items() if older.get(log) != time}
        if changed:  # else no ninja ran
            copy = step_run.record.folder / f"{step_run.step.id}.ninja_log"
            shutil.copyfile(max(changed, key=changed.__getitem__), copy)
            step_run.record_event("ninja", log=copy, began=round(began, 3))


def _name_error_sources(step_run: StepRun, request: build_request.BuildRequest, failed: BuildFailed) -> None:
    """Say of errors in what hipify made where they are in its sources: the first, and all in the log."""
    failure, lines = failed.failure, list[str]()
    text = failed.log.read_text(encoding="utf-8", errors="replace")
    for file, line in list_error_places(text.splitlines())[:_MOST_ERROR_PLACES]:
        source = hipify_record.find_translated_line(request.folder / file, line, env=step_run.facts.env)
        if source is None:
            continue
        place = f"{source[0]}:{source[1]}"
        lines.append(f"{file}:{line} is {place}")
        if failure is not None and (file, line) == (failure.file, failure.line):
            failed.name_source(place)
    if lines:
        step_run.append_log("errors in what hipify made, and where they are in its sources", lines)


def _list_parts(step_run: StepRun, build: ProjectBuild) -> WheelParts:
    """Return what goes into the wheel besides its sources: the packages that it is built against.

    A wheel that is the same for all families does not name the ROCm that it happened to be built with.
    """
    from rocm_wheels.wheels.sbom import PackagePart, WheelParts

    project, ready, request = build.project, step_run.ready, build.planned.request
    packages = [
        PackagePart(load_project(name).distribution, version) for name, version in request.against.items()
    ]
    if project.serves_every_family(request.platform):
        return WheelParts(__version__, packages=tuple(packages))
    rocm = build_environment.list_installed_packages(ready.site_packages, "rocm*")
    packages += [
        PackagePart(package.name, package.version, package.hash_files()) for package in rocm.values()
    ]
    extras = rocm["rocm"].extras if "rocm" in rocm else ()
    return WheelParts(
        __version__,
        targets=request.targets if project.has_device_code else (),
        rocm=ready.sdk.version,
        packages=tuple(packages),
        devices=tuple(sorted(e.removeprefix("device-") for e in extras if e.startswith("device-gfx"))),
    )


def _verify_wheel(
    step_run: StepRun, build: ProjectBuild, wheel: frontend.BuiltWheel, requirements: Sequence[str]
) -> audited_wheel.AuditReport:
    """Check a wheel as a file; then, where it is right, import it where others will need it.

    One that does not count is set aside with its log. Raises AuditError.
    """
    from rocm_wheels.audit import verify  # planning does not load it
    from rocm_wheels.package import sbom

    facts, ready, others = step_run.facts, step_run.ready, build.project.build.installed_for_others
    expected = wheel_checks.make_expectation(step_run, wheel.version, requirements)
    report = verify.verify_wheel(wheel.path, expected)
    if facts.request.repair:
        later = [finding for finding in report.findings if finding.check not in _MENDED_BY_REPAIR]
        report = replace(report, findings=tuple(later))
    if not report.passed:
        return wheel_checks.judge_report(step_run, report)
    if others:
        _install_wheel(step_run, build.project, wheel.path, sbom.digest_record(report.record))
    report = wheel_checks.import_checked_wheel(step_run, report, expected, installed=others)
    if others and not report.passed:
        with build_environment.hold_environment(ready, facts.workspace, purpose=step_run.step.id):
            build_environment.uninstall_built_wheel(
                ready, distribution=build.project.distribution, env=facts.env
            )
    return wheel_checks.judge_report(step_run, report)
