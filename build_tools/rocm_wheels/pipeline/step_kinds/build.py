"""``build`` and ``configure``: configure a project's tree; build, check and collect its wheel.

The wheels that it is built against are installed first; what a compiler cache did is counted, recorded,
and compared with what is asked of it.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocm_wheels.compile import build_request, compiler_cache, frontend, sdk_tree
from rocm_wheels.compile.failure import BuildFailed, list_error_places
from rocm_wheels.core import errors, files, process, shell
from rocm_wheels.core.log import log_note, log_warning
from rocm_wheels.models.project import Project, load_project
from rocm_wheels.pipeline import (
    build_environment,
    build_statement,
    provided_wheel_checks,
    provided_wheels,
    status,
    wheel_checks,
)
from rocm_wheels.pipeline.outputs import OutputFile, StepStamp, refuse_foreign_wheels, write_stamp
from rocm_wheels.pipeline.planner import PlannedBuild, Planner, decide_verdict, select_configure_inputs
from rocm_wheels.pipeline.step import Step, configure_step_id
from rocm_wheels.pipeline.step_run import StepRun
from rocm_wheels.sources import checkout_state, hipify_record, trees

if TYPE_CHECKING:
    from rocm_wheels.audit import audited_wheel
    from rocm_wheels.wheels.sbom import WheelParts


def settle_build(planner: Planner, step: Step, inputs: dict[str, str]) -> Step:
    """Return the step with its inputs, estimate, command and environment, as far as they are known."""
    identity = planner.facts.trees[str(step.project)].identity
    inputs |= {"commit": identity.commit, "sources": identity.tree}
    targets = planner.known_targets() if load_project(str(step.project)).has_device_code else ()
    if targets:
        inputs["PYTORCH_ROCM_ARCH"] = ";".join(targets)
    planned = planner.plan_step_build(step)
    command = make_build_command(planner, step, planned.request)
    step = decide_verdict(planner, step, dict(planned.inputs), command=command)
    step = replace(
        step,
        environment=shell.redact_environment(shell.compare_environments(planned.base, planned.environment)),
    )
    return step if step.verdict == "run" else _check_current_wheel(planner, step)


def make_build_command(planner: Planner, step: Step, request: build_request.BuildRequest) -> str:
    """Return the command line of a build's front end, as it can be pasted into a shell."""
    workspace = planner.facts.workspace
    python = build_environment.find_project_layer(str(step.project), planner.ready, workspace).python
    argv = frontend.make_front_end_command(
        request,
        request.folder,
        python=python,
        out_dir=workspace.fresh_wheels / step.id,
        checked=is_checked_before(planner, step),
    )
    return shell.format_command(argv, cwd=request.folder)


def is_checked_before(planner: Planner, step: Step) -> bool:
    """Tell whether another step has looked that what a build requires is there: the one that configures."""
    return step.kind == "build" and configure_step_id(str(step.project), planner.facts) in planner.steps


def _check_current_wheel(planner: Planner, step: Step) -> Step:
    """Look whether a current wheel has in it what this run wants."""
    request, stamp = planner.facts.request, planner.facts.done[step.id].stamp
    if request.clean:
        return replace(step, verdict="run", why="--clean")
    if request.verify and not stamp.facts.get("verified"):
        return replace(step, verdict="run", why="not verified")
    why = _why_other_lock(planner, step) or _why_no_statement(planner, step)
    # that costs nothing of what building it would
    return replace(step, verdict="run", why=why, brought=True, estimate=None) if why else step


def _why_other_lock(planner: Planner, step: Step) -> str:
    locked, stamp = planner.facts.locked, planner.facts.done[step.id].stamp
    if locked is None:
        return ""
    from rocm_wheels.package import sbom

    if stamp.facts["lock"] == sbom.digest_lock_part(locked.lock, str(step.project)):
        return ""
    return "the wheel records another lock"


def _why_no_statement(planner: Planner, step: Step) -> str:
    from rocm_wheels.wheels import statement

    stamp = planner.facts.done[step.id].stamp
    outputs = [Path(output.path) for output in stamp.outputs]
    missing = [path.name for path in outputs if not statement.has_statement(path)]
    return f"the wheel has no statement: {missing[0]}" if missing else ""


@contextmanager
def count_cache_use(
    step_run: StepRun, environment: Mapping[str, str], collected: list[compiler_cache.CacheStatistics]
) -> Iterator[Mapping[str, str]]:
    """Yield variables that the cache needs beside those of a build; what it did is added to ``collected``.

    The counts go into the record also when the build fails. Without a cache nothing happens.
    """
    cache = step_run.facts.cache
    if cache is None:
        yield {}
        return
    root, sources = step_run.facts.workspace.root, step_run.facts.request.sources.values()
    base = compiler_cache.find_base_folder([root, *sources])
    with compiler_cache.open_cache_session(
        cache, environment, root / "compiler-cache", base
    ) as cache_variables:
        env = {**environment, **cache_variables}
        before = compiler_cache.read_statistics(cache, env)
        try:
            yield cache_variables
        finally:
            after = compiler_cache.read_statistics(cache, env)
            use = after.subtract(before)
            collected.append(use)
            if use.cacheable:
                log_note(use.text)
            step_run.record_event(
                "cache",
                kind=cache.kind,
                before=before.as_record(),
                after=after.as_record(),
                host=asdict(use.host),
                device=asdict(use.device),
                rate=use.rate,
            )


def refuse_few_hits(collected: Sequence[compiler_cache.CacheStatistics], percent: float | None) -> None:
    """Raise BuildError where a cache gave less than is asked for; the wheel counts all the same."""
    if percent is None:
        return
    for use in collected:
        if (fault := compiler_cache.explain_low_rate(use, percent / 100)) is not None:
            raise errors.BuildError(
                fault, tip="the wheel is finished; is the cache the one that was filled before?"
            )


def install_needed_wheels(step_run: StepRun, project: Project) -> None:
    """Bring the wheels that a project is built against into the build environment.

    Raises UsageError for a given one that, when it is imported there, proves not to fit.
    """
    for name in project.build.after:
        other = load_project(name)
        if not step_run.facts.builds_project(name):
            provided = step_run.facts.python.provided.get(name)
            if provided is not None and provided.wheel is not None:
                install_project_wheel(step_run, other, provided.wheel, provided.content)
                _check_given_wheel(step_run, project, other, provided)
        elif other.build.installed_for_others:
            stamp = step_run.facts.done[step_run.planner.find_build_step(step_run.step, name)].stamp
            install_project_wheel(step_run, other, Path(stamp.outputs[0].path), str(stamp.facts["content"]))


def install_project_wheel(step_run: StepRun, project: Project, wheel: Path, content: str) -> None:
    """Install a wheel, in place of another one of its project, unless that very one is installed."""
    with build_environment.hold_environment(
        step_run.ready, step_run.facts.workspace, purpose=step_run.step.id
    ):
        build_environment.install_built_wheel(
            step_run.ready, wheel, content, distribution=project.distribution, env=step_run.facts.env
        )


def _check_given_wheel(
    step_run: StepRun, project: Project, other: Project, given_wheel: provided_wheels.ProvidedWheel
) -> None:
    """Import what was given and raise UsageError when it does not fit; each build against it asks again.

    It stays installed: others may be compiled against it at this moment.
    """
    facts, targets = step_run.facts, step_run.planner.find_targets()
    installed = provided_wheels.inspect_installed_wheel(
        other, step_run.ready, facts.request.platform, facts.workspace, facts.env
    )
    assert installed is not None, f"{given_wheel.wheel} was installed"
    # the lock was looked for in the file: the same content may have been installed without one
    faults = provided_wheel_checks.find_project_misfits(
        project, replace(installed, lock=given_wheel.lock), facts, targets
    )
    if not faults:
        return
    faults_text = "\n  ".join(faults)
    raise errors.UsageError(
        f"{given_wheel.describe()} was installed, and cannot be built against:\n  {faults_text}"
    )


# what a repair mends, or refuses: of a wheel as it was built they are no faults yet
_MOST_ERROR_PLACES = 50  # of a build that fails: the translation of each is read
_MENDED_BY_REPAIR = {"executable-stack", "needed-libraries", "elf-tag-too-old", "run-paths"}


@dataclass(frozen=True)
class CheckedWheel:
    """A fresh wheel that counts: digests of the file and of its content, and what the checks found."""

    sha256: str
    content: str
    report: audited_wheel.AuditReport | None


_MOST_NINJAS = 100  # that are recorded of a build


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


def run_build(step_run: StepRun) -> bool:
    """Build a project's wheel; tell whether it was there and needed only a check, or the lock of this run.

    Raises BuildError, AuditError and what their causes raise. The source tree is held meanwhile.
    """
    step = BuildStep(step_run)
    source = step_run.facts.request.sources[step.project.name]
    with checkout_state.hold_checkout(source, activity=step_run.step.id, env=step_run.facts.env):
        trees.restore_links(source, step_run.facts.env)  # of a build that was killed
        return step.build_or_bring()


@dataclass(frozen=True)
class BuildStep:
    """The turn of a build: everything it needs, and what is made of it."""

    step_run: StepRun

    cache_statistics: list[compiler_cache.CacheStatistics] = field(default_factory=list)

    @cached_property
    def project(self) -> Project:
        """The project."""
        return load_project(str(self.step_run.step.project))

    @cached_property
    def planned_build(self) -> PlannedBuild:
        """Request, environment and inputs."""
        return self.step_run.planner.plan_step_build(self.step_run.step)

    def build_or_bring(self) -> bool:
        """Do it; see ``run_build``."""
        self._refuse_foreign_wheels()
        done = self.step_run.facts.done.get(self.step_run.step.id)
        wheel_exists = done is not None and self._is_wheel_current(done.stamp)
        if (
            done is not None
            and wheel_exists
            and (done.stamp.facts["verified"] or not self.step_run.facts.request.verify)
        ):
            self._renew_records(done.stamp)
            return True
        if self.planned_build.attention is not None:
            log_note(f"flash attention: {self.planned_build.attention}")
        install_needed_wheels(self.step_run, self.project)
        moment = build_statement.BuildMoment(
            self.step_run.record.folder.name, build_statement.format_moment()
        )
        if done is not None and wheel_exists:
            wheel, moment = (
                self._copy_wheel(done.stamp),
                build_statement.BuildMoment.from_facts(done.stamp.facts),
            )
        else:
            wheel = self._build_wheel()
            moment = replace(
                moment,
                finished=build_statement.format_moment(),
                hits=sum(use.hits for use in self.cache_statistics),
                cacheable=sum(use.cacheable for use in self.cache_statistics),
            )
        checked = self._check_wheel(wheel)
        predicate = self._write_statement(wheel.path, checked.sha256, moment)
        targets = checked.report.targets if checked.report else ()
        output = self._keep_wheel(wheel.path, checked.sha256)
        stamp = self.step_run.record_success(
            (output,),
            version=wheel.version,
            targets=list(targets),
            verified=checked.report is not None,
            content=checked.content,
            lock=self._lock_digest,
            requirements=list(self._requirements),
            built=asdict(moment),
            predicate=predicate,
        )
        self._stamp_configure_step()
        self._record_built(stamp)
        refuse_few_hits(self.cache_statistics, self.step_run.facts.request.cache_floor)
        return wheel_exists

    def _stamp_configure_step(self) -> None:
        """Record that the tree of this build was configured as its inputs say: its wheel came out of it."""
        name = configure_step_id(self.project.name, self.step_run.facts)
        if name in self.step_run.planner.steps:
            inputs = select_configure_inputs(self.step_run.known_inputs)
            write_stamp(self.step_run.facts.workspace.steps, StepStamp(name, inputs, (), {}))

    def _record_built(self, stamp: StepStamp) -> None:
        """Record the wheel, which is not what people install yet: the steps that package it deliver that."""
        (output,) = stamp.outputs
        self.step_run.record_event(
            "built",
            path=output.path,
            size=output.size,
            sha256=output.sha256,
            project=self.project.name,
            version=stamp.facts["version"],
            targets=stamp.facts["targets"] if stamp.facts["verified"] else None,
            content=stamp.facts["content"],
        )

    # -- the wheel is there ---------------------------------------------------------------------------------

    def _is_wheel_current(self, stamp: StepStamp) -> bool:
        """Tell whether the wheel that is there is the one wanted, but for its lock, or a check."""
        request, done = self.step_run.facts.request, self.step_run.facts.done[self.step_run.step.id]
        return dict(stamp.inputs) == self.step_run.known_inputs and done.fault is None and not request.clean

    def _copy_wheel(self, stamp: StepStamp) -> frontend.BuiltWheel:
        """Return a copy of a wheel that nobody has checked yet, as if it had just been built."""
        source = Path(stamp.outputs[0].path)
        path = self.step_run.facts.workspace.fresh_wheels / self.step_run.step.id / source.name
        files.copy_atomically(source, path)
        return frontend.BuiltWheel(
            path, self.project.distribution, str(stamp.facts["version"]), "not used", 0.0
        )

    def _renew_records(self, stamp: StepStamp) -> None:
        """Put the lock of this run into the wheel of an earlier one, and its statement beside it."""
        facts, source = dict(stamp.facts), Path(stamp.outputs[0].path)
        output = stamp.outputs[0]
        if self._lock_text is not None and facts["lock"] != self._lock_digest:
            from rocm_wheels.package import sbom

            fresh = self.step_run.facts.workspace.fresh_wheels / self.step_run.step.id
            renewed, _ = sbom.embed_provenance(source, fresh, self._lock_text, self._list_parts())
            log_note(f"the lock of this run is put into {source.name}")
            digest, facts["lock"] = files.hash_file(renewed), self._lock_digest
            facts["predicate"] = self._write_statement(
                renewed, digest, build_statement.BuildMoment.from_facts(facts)
            )
            output = self._keep_wheel(renewed, digest)
        else:
            build_statement.restore_build_statement(source, output.sha256, facts["predicate"])
        stamp = StepStamp(stamp.step, stamp.inputs, (output,), facts)
        write_stamp(self.step_run.facts.workspace.steps, stamp)
        self._record_built(stamp)

    # -- building -------------------------------------------------------------------------------------------

    def _build_wheel(self) -> frontend.BuiltWheel:
        step_run = self.step_run
        environment = dict(self.planned_build.environment)
        if step_run.jobs is not None:
            environment["MAX_JOBS"] = environment["CMAKE_BUILD_PARALLEL_LEVEL"] = str(step_run.jobs)
        began, older_logs = time.monotonic(), self._list_ninja_logs()
        try:
            with count_cache_use(step_run, environment, self.cache_statistics) as cache_variables:
                return self.make_front_end({**environment, **cache_variables}).build()
        except BuildFailed as failed:
            self._name_error_sources(failed)
            raise
        finally:
            self._keep_ninja_log(began, older_logs)

    def _name_error_sources(self, failed: BuildFailed) -> None:
        """Say of errors in what hipify made where they are in its sources: the first, and all in the log."""
        request, failure, lines = self.planned_build.request, failed.failure, list[str]()
        text = failed.log.read_text(encoding="utf-8", errors="replace")
        for file, line in list_error_places(text.splitlines())[:_MOST_ERROR_PLACES]:
            source = hipify_record.find_translated_line(
                request.folder / file, line, env=self.step_run.facts.env
            )
            if source is None:
                continue
            place = f"{source[0]}:{source[1]}"
            lines.append(f"{file}:{line} is {place}")
            if failure is not None and (file, line) == (failure.file, failure.line):
                failed.name_source(place)
        if lines:
            self.step_run.append_log("errors in what hipify made, and where they are in its sources", lines)

    def make_front_end(self, environment: Mapping[str, str], *, editable: bool = False) -> frontend.FrontEnd:
        """Return the project's own build in an environment; who listens is the record of this run."""
        step_run, ready, preloads = self.step_run, self.step_run.ready, None
        request = replace(self.planned_build.request, editable=editable)
        if self.project.checks.rocm_init:
            platform = step_run.facts.request.platform
            if (prefix := ready.sdk.prefix) is not None:
                preloads = sdk_tree.find_preloads(platform, prefix.find_library)
            else:
                preloads = sdk_tree.ask_preloads(ready.environment.python, platform, step_run.facts.env)
            if text := preloads.warning():
                log_warning(text)

        def ran(argv: list[str], env: Mapping[str, str], finished: process.FinishedProcess) -> None:
            changes = shell.compare_environments(self.planned_build.base, env)
            step_run.record_command(argv, finished, cwd=request.folder, changes=changes)

        workspace = step_run.facts.workspace
        return frontend.FrontEnd(
            request,
            base=step_run.facts.env,
            env=environment,
            python=build_environment.find_project_layer(self.project.name, ready, workspace).python,
            python_tag=ready.python_tag,
            out_dir=workspace.fresh_wheels / step_run.step.id,
            log=step_run.log,
            preloads=preloads,
            clean=step_run.facts.request.clean,
            checked=is_checked_before(step_run.planner, step_run.step),
            on_line=NinjaWatch(step_run).read_line,
            ran=ran,
            restore=partial(trees.restore_links, request.source, step_run.facts.env),
        )

    def _list_ninja_logs(self) -> dict[Path, int]:
        """Return the logs of ninja in the build trees, with the times of their last change."""
        folders = [self.planned_build.request.folder / name for name in self.project.build.trees]
        patterns = (".ninja_log", "temp.*/.ninja_log")
        logs = [log for tree in folders for pattern in patterns for log in tree.glob(pattern)]
        return {log: log.stat().st_mtime_ns for log in logs}

    def _keep_ninja_log(self, began: float, older_logs: Mapping[Path, int]) -> None:
        """Keep ninja's own record of this build in the folder of the run: the log that changed last.

        ``older_logs`` are as they were before it; where no other is there, no ninja ran.
        """
        changed = {log: time for log, time in self._list_ninja_logs().items() if older_logs.get(log) != time}
        if changed:
            log_copy = self.step_run.record.folder / f"{self.step_run.step.id}.ninja_log"
            shutil.copyfile(max(changed, key=changed.__getitem__), log_copy)
            self.step_run.record_event("ninja", log=log_copy, began=round(began, 3))

    # -- checking -------------------------------------------------------------------------------------------

    @cached_property
    def _lock_text(self) -> bytes | None:
        """The lock that this wheel is built from: what goes into it."""
        locked = self.step_run.facts.locked
        if locked is None:
            return None
        from rocm_wheels.package import sbom

        return sbom.extract_lock_part(locked.lock, self.project.name)

    @property
    def _lock_digest(self) -> str:
        return "" if self._lock_text is None else hashlib.sha256(self._lock_text).hexdigest()

    def _check_wheel(self, wheel: frontend.BuiltWheel) -> CheckedWheel:
        """Check a fresh wheel; one that does not count is set aside with its log. Raises AuditError."""
        inside, fault = "", None
        try:
            inside = self._embed_provenance(wheel.path)
        except errors.DataError as damage:
            fault = damage  # the checks say more of it
        report: audited_wheel.AuditReport | None = None
        if self.step_run.facts.request.verify:
            report = self._verify_wheel(wheel, inside)
        if fault is not None:
            raise fault
        if report is None and self.project.build.installed_for_others:
            inside = inside or self._digest_wheel(wheel, None)
            install_project_wheel(self.step_run, self.project, wheel.path, inside)
        inside = inside or self._digest_wheel(wheel, report)
        return CheckedWheel(report.sha256 if report else files.hash_file(wheel.path), inside, report)

    def _digest_wheel(self, wheel: frontend.BuiltWheel, report: audited_wheel.AuditReport | None) -> str:
        """Return the digest of a wheel's content; one that was checked is not opened again."""
        from rocm_wheels.package import sbom

        return sbom.digest_content(wheel.path) if report is None else sbom.digest_record(report.record)

    def _embed_provenance(self, wheel: Path) -> str:
        """Put lock, bill of materials and pins into a wheel; return its content."""
        from rocm_wheels.package import sbom

        requirement = self.planned_build.request.rocm_requirement
        return sbom.embed_provenance(
            wheel,
            wheel.parent,
            self._lock_text,
            self._list_parts(),
            (*self.planned_build.pins, *([requirement] if requirement else [])),
            external=self._list_external(),
        )[1]

    def _list_external(self) -> tuple[str, ...]:
        """Return what the wheel requires of the system: the installed ROCm that it was built on."""
        from rocm_wheels.wheels import dist_info

        project, sdk = self.project, self.step_run.ready.sdk
        serves_all = project.serves_every_family(self.planned_build.request.platform)
        if sdk.prefix is None or serves_all or not (project.has_device_code or project.checks.requires_rocm):
            return ()
        return (dist_info.format_external_rocm(sdk.version),)

    def _write_statement(
        self, wheel: Path, sha256: str, moment: build_statement.BuildMoment
    ) -> dict[str, Any]:
        """Write beside a finished wheel how it was built, and return it."""
        parts = self._list_parts()
        return build_statement.write_build_statement(
            self.step_run, self.planned_build, wheel, sha256, parts=parts, moment=moment
        )

    def _list_parts(self) -> WheelParts:
        """Return what goes into the wheel: its sources, and the packages that it is built against.

        A wheel that is the same for all families does not name the ROCm that it happened to be built with.
        """
        from rocm_wheels import __version__
        from rocm_wheels.package import sbom
        from rocm_wheels.wheels.sbom import PackagePart, WheelParts

        facts, ready, request = self.step_run.facts, self.step_run.ready, self.planned_build.request
        lock = facts.locked.lock if facts.locked is not None else None
        sources = sbom.list_source_parts(self.project, lock, facts.trees[self.project.name].identity)
        packages = [
            PackagePart(load_project(name).distribution, version) for name, version in request.against.items()
        ]
        if self.project.serves_every_family(request.platform):
            return WheelParts(__version__, sources=sources, packages=tuple(packages))
        rocm = build_environment.list_installed_packages(ready.site_packages, "rocm*")
        for package in rocm.values():
            packages.append(PackagePart(package.name, package.version, package.hash_files()))
        targets = request.targets if self.project.has_device_code else ()
        extras = rocm["rocm"].extras if "rocm" in rocm else ()
        devices = tuple(sorted(e.removeprefix("device-") for e in extras if e.startswith("device-gfx")))
        return WheelParts(__version__, targets, ready.sdk.version, sources, tuple(packages), devices)

    def _verify_wheel(self, wheel: frontend.BuiltWheel, inside: str) -> audited_wheel.AuditReport:
        """Check a wheel as a file; then, where it is right, import it where others will need it."""
        from rocm_wheels.audit import verify  # planning does not load it

        ready, others = self.step_run.ready, self.project.build.installed_for_others
        expected = wheel_checks.make_expectation(self.step_run, wheel.version, self._requirements)
        report = verify.verify_wheel(wheel.path, expected)
        if self.step_run.facts.request.repair.enabled:
            later = [finding for finding in report.findings if finding.check not in _MENDED_BY_REPAIR]
            report = replace(report, findings=tuple(later))
        if not report.passed:
            return wheel_checks.judge_report(self.step_run, report)
        if others:
            inside = inside or self._digest_wheel(wheel, report)
            install_project_wheel(self.step_run, self.project, wheel.path, inside)
        report = wheel_checks.import_checked_wheel(self.step_run, report, expected, installed=others)
        if others and not report.passed:
            with build_environment.hold_environment(
                ready, self.step_run.facts.workspace, purpose=self.step_run.step.id
            ):
                build_environment.uninstall_built_wheel(
                    ready, distribution=self.project.distribution, env=self.step_run.facts.env
                )
        return wheel_checks.judge_report(self.step_run, report)

    @property
    def _requirements(self) -> tuple[str, ...]:
        """The exact versions that METADATA must require besides those of the recipe."""
        requirement = self.planned_build.request.triton_requirement
        triton = (requirement,) if requirement and self.project.checks.requires_rocm else ()
        return (*triton, *self.planned_build.pins)

    # -- where it is kept -----------------------------------------------------------------------------------

    def _refuse_foreign_wheels(self) -> None:
        """Refuse at once what delivering the wheel, hours later, would be refused for."""
        facts = self.step_run.facts
        refuse_foreign_wheels(
            facts.workspace,
            facts.request.wheels_folder,
            self.project.distribution,
            self.step_run.ready.python_tag,
            self.step_run.planner.describe_purpose(self.step_run.step),
        )

    def _keep_wheel(self, wheel: Path, sha256: str) -> OutputFile:
        """Move a wheel to where it stays until it is packaged, and others are built against it."""
        (kept,) = self.step_run.keep_files([wheel])
        return OutputFile.from_path(kept, sha256)


def settle_configure(planner: Planner, step: Step, inputs: dict[str, str]) -> Step:
    """Return the step with the inputs of its build that CMake reads."""
    planned = planner.plan_step_build(step)
    inputs |= select_configure_inputs(planned.inputs)
    return decide_verdict(planner, step, inputs, command=make_build_command(planner, step, planned.request))


def run_configure(step_run: StepRun) -> None:
    """Run the front end of a build until CMake has configured its tree, in which the build goes on later.

    Raises BuildFailed when CMake fails, or goes on without what was asked for. The source is held meanwhile.
    """
    step = BuildStep(step_run)
    source = step_run.facts.request.sources[step.project.name]
    with checkout_state.hold_checkout(source, activity=step_run.step.id, env=step_run.facts.env):
        environment = {**step.planned_build.environment, "MAX_JOBS": "1"}  # what compiles is ended at once
        step.make_front_end(environment).configure()
    step_run.record_success()
