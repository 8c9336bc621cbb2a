"""A project's step: build, check and collect its wheel, or bring the one there is where it is wanted."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from rocm_wheels import log
from rocm_wheels.audit.findings import AuditReport
from rocm_wheels.audit.imports import ImportPlace
from rocm_wheels.audit.report import add_import, reject, report_lines, verify_wheel
from rocm_wheels.audit.subject import Expectation
from rocm_wheels.compile.cache import CacheStatistics
from rocm_wheels.compile.frontend import BuiltWheel, build_wheel
from rocm_wheels.compile.rocm_init import ask_preloads
from rocm_wheels.errors import AuditError, DataError
from rocm_wheels.model.project import Project, load_project
from rocm_wheels.pipeline.collect import collect, refuse_foreign
from rocm_wheels.pipeline.facts.layers import layer_of, python_with
from rocm_wheels.pipeline.plan.building import PlannedBuild, configured_by
from rocm_wheels.pipeline.plan.graph import configure_id
from rocm_wheels.pipeline.plan.step import KnownAfter
from rocm_wheels.pipeline.provenance import content, part_of, put_inside
from rocm_wheels.pipeline.stamps import Output, Stamp, sha256_of, write_stamp
from rocm_wheels.pipeline.steps.counting import counting, refuse_few_hits
from rocm_wheels.pipeline.steps.installing import changing, forget_built
from rocm_wheels.pipeline.steps.needed import install, install_needed
from rocm_wheels.pipeline.steps.turn import Turn
from rocm_wheels.process import Finished
from rocm_wheels.shell import environment_changes
from rocm_wheels.sources.hold import held
from rocm_wheels.sources.links import restore_links
from rocm_wheels.words import counted
from rocm_wheels.workspace import copy_whole


@dataclass(frozen=True)
class Checked:
    """A fresh wheel that counts: digests of the file and of its content, and what the checks found."""

    sha256: str
    content: str
    report: AuditReport | None


def build(turn: Turn) -> bool:
    """Bring a project's wheel where it is wanted; tell whether it was there and only had to be brought.

    Raises BuildError, AuditError and what their causes raise. The source tree is held meanwhile.
    """
    step = BuildStep(turn)
    source = turn.facts.request.sources[step.project.name]
    with held(source, what=turn.step.id, env=turn.facts.env):
        restore_links(source, turn.facts.env)  # of a build that was killed
        return step.run()


@dataclass(frozen=True)
class BuildStep:
    """The turn of a build: everything it needs, and what is made of it."""

    turn: Turn

    counted: list[CacheStatistics] = field(default_factory=list)

    @cached_property
    def project(self) -> Project:
        """The project."""
        return load_project(str(self.turn.step.project))

    @cached_property
    def planned(self) -> PlannedBuild:
        """Request, environment and inputs."""
        planned = self.turn.planner.planned_build(self.turn.step)
        assert not isinstance(planned, KnownAfter), f"{self.turn.step.id} began before {planned}"
        return planned

    @property
    def folders(self) -> tuple[Path, ...]:
        """Where the wheel goes."""
        return self.turn.planner.graph.folders(self.turn.step, self.turn.facts.request.output)

    def run(self) -> bool:
        """Do it; see ``build``."""
        self._refuse_foreign()
        done = self.turn.facts.done.get(self.turn.step.id)
        there = done is not None and self._is_there(done.stamp)
        if (
            done is not None
            and there
            and (done.stamp.facts["verified"] or not self.turn.facts.request.verify)
        ):
            self._bring(done.stamp)
            return True
        if self.planned.attention is not None:
            log.note(f"flash attention: {self.planned.attention}")
        install_needed(self.turn, self.project)
        wheel = self._copied(done.stamp) if done is not None and there else self._build()
        checked = self._check(wheel)
        targets = checked.report.targets if checked.report else ()
        outputs = tuple(
            Output.of(self._collect(wheel.path, folder), checked.sha256) for folder in self.folders
        )
        wheel.path.unlink()
        libraries = checked.report.libraries if checked.report else {}
        stamp = self.turn.succeed(
            outputs,
            version=wheel.version,
            targets=list(targets),
            verified=checked.report is not None,
            content=checked.content,
            lock=self._lock_digest,
        )
        self._note_configured()
        self._told(stamp, libraries)
        refuse_few_hits(self.counted, self.turn.facts.request.cache_floor)
        return there

    def _note_configured(self) -> None:
        """Record that the tree of this build was configured as its inputs say: its wheel came out of it."""
        name, graph = configure_id(self.project.name), self.turn.planner.graph
        if name in graph.steps and graph.steps[name].cell == self.turn.step.cell:
            inputs = configured_by(self.turn.known_inputs)
            write_stamp(self.turn.facts.workspace.steps, Stamp(name, inputs, (), {}))

    def _told(self, stamp: Stamp, libraries: Mapping[str, tuple[str, ...]]) -> None:
        for output in stamp.outputs:
            self.turn.event(
                "output",
                path=output.path,
                size=output.size,
                sha256=output.sha256,
                project=self.project.name,
                version=stamp.facts["version"],
                targets=stamp.facts["targets"] if stamp.facts["verified"] else None,
                libraries=libraries,
                content=stamp.facts["content"],
            )

    # -- the wheel is there ---------------------------------------------------------------------------------

    def _is_there(self, stamp: Stamp) -> bool:
        """Tell whether the wheel that is there is the one wanted: it has to be brought, or to be checked."""
        request, done = self.turn.facts.request, self.turn.facts.done[self.turn.step.id]
        return dict(stamp.inputs) == self.turn.known_inputs and done.fault is None and not request.clean

    def _copied(self, stamp: Stamp) -> BuiltWheel:
        """Return a copy of a wheel that nobody has checked yet, as if it had just been built."""
        source = Path(stamp.outputs[0].path)
        path = self.turn.facts.workspace.fresh / self.turn.step.id / source.name
        copy_whole(source, path)
        return BuiltWheel(path, self.project.distribution, str(stamp.facts["version"]), "not used", 0.0)

    def _bring(self, stamp: Stamp) -> None:
        """Copy the wheel of an earlier run into the folders of this one, with the lock of this one."""
        facts, source = dict(stamp.facts), Path(stamp.outputs[0].path)
        digest, renewed = stamp.outputs[0].sha256, None
        if self._lock is not None and facts["lock"] != self._lock_digest:
            source, _ = put_inside(source, self.turn.facts.workspace.fresh / self.turn.step.id, self._lock)
            digest, facts["lock"], renewed = sha256_of(source), self._lock_digest, source
            log.note(f"the lock of this run is put into {source.name}")
        outputs = []
        for folder in self.folders:
            target = folder / source.name
            outputs.append(Output.of(target if target == source else self._collect(source, folder), digest))
        stamp = Stamp(stamp.step, stamp.inputs, tuple(outputs), facts)
        write_stamp(self.turn.facts.workspace.steps, stamp)
        self._told(stamp, {})
        if renewed is not None:
            renewed.unlink()

    # -- building -------------------------------------------------------------------------------------------

    def _build(self) -> BuiltWheel:
        turn = self.turn
        environment = dict(self.planned.environment)
        if turn.jobs is not None:
            environment["MAX_JOBS"] = environment["CMAKE_BUILD_PARALLEL_LEVEL"] = str(turn.jobs)
        began = time.monotonic()
        try:
            with counting(turn, environment, self.counted) as more:
                return build_wheel(self.planned.request, **self.front_end({**environment, **more}))
        finally:
            self._keep_ninja_log(began)

    def front_end(self, environment: Mapping[str, str]) -> dict[str, Any]:
        """Return with what a front end is run: its environment, Python and folders, and who listens."""
        turn, ready, preloads = self.turn, self.turn.ready, None
        if self.project.checks.rocm_init:
            preloads = ask_preloads(ready.environment.python, turn.facts.request.platform, turn.facts.env)
            if text := preloads.warning():
                log.warn(text)

        def ran(argv: list[str], env: Mapping[str, str], finished: Finished) -> None:
            changes = environment_changes(self.planned.base, env)
            turn.ran(argv, finished, cwd=self.planned.request.folder, changes=changes)

        return {
            "base": turn.facts.env,
            "env": environment,
            "python": layer_of(self.project.name, ready, turn.facts.workspace).python,
            "python_tag": ready.python_tag,
            "out_dir": turn.facts.workspace.fresh / turn.step.id,
            "log": turn.log,
            "preloads": preloads,
            "clean": turn.facts.request.clean,
            "on_line": turn.say,
            "ran": ran,
            "restore": partial(restore_links, self.planned.request.source, turn.facts.env),
        }

    def _keep_ninja_log(self, began: float) -> None:
        """Keep ninja's own record of the build in the folder of the run: the newest of the tree."""
        request = self.planned.request
        trees = [request.folder / name for name in self.project.build.trees]
        logs = [log for tree in trees for log in (*tree.glob(".ninja_log"), *tree.glob("temp.*/.ninja_log"))]
        if logs:
            kept = self.turn.record.folder / f"{self.turn.step.id}.ninja_log"
            shutil.copyfile(max(logs, key=lambda path: path.stat().st_mtime_ns), kept)
            self.turn.event("ninja", log=kept, began=round(began, 3))

    # -- checking -------------------------------------------------------------------------------------------

    @cached_property
    def _lock(self) -> bytes | None:
        """The lock that this wheel is built from: what goes into it."""
        locked = self.turn.facts.locked
        return None if locked is None else part_of(locked.lock, self.project.name)

    @property
    def _lock_digest(self) -> str:
        return "" if self._lock is None else hashlib.sha256(self._lock).hexdigest()

    def _check(self, wheel: BuiltWheel) -> Checked:
        """Check a fresh wheel; one that does not count is set aside with its log. Raises AuditError."""
        inside, fault = "", None
        try:
            inside = self._put_inside(wheel.path)
        except DataError as damage:
            fault = damage  # the checks say more of it
        report: AuditReport | None = None
        if self.turn.facts.request.verify:
            report = self._verify(wheel, inside)
        if fault is not None:
            raise fault
        if report is None and self.project.build.installed_for_others:
            install(self.turn, self.project, wheel.path, inside)
        return Checked(report.sha256 if report else sha256_of(wheel.path), inside, report)

    def _put_inside(self, wheel: Path) -> str:
        """Put lock and pins into a wheel; return its content."""
        if self._lock is None and not self.planned.pins:
            return content(wheel)
        return put_inside(wheel, wheel.parent, self._lock, self.planned.pins)[1]

    def _verify(self, wheel: BuiltWheel, inside: str) -> AuditReport:
        """Check a wheel as a file; then, where it is right, import it where others will need it."""
        facts, ready, others = self.turn.facts, self.turn.ready, self.project.build.installed_for_others
        asked = self.planned.request.triton_requirement
        triton = (asked,) if asked and self.project.checks.requires_rocm else ()
        expected = Expectation(
            project=self.project,
            platform=facts.request.platform,
            version=wheel.version,
            python_tag=ready.python_tag,
            targets=self.planned.request.targets,
            rocm_version=ready.sdk.version,
            requirements=(*triton, *self.planned.pins),
        )
        python = python_with(self.project.name, ready, facts.workspace)
        packages = ready.site_packages if others else None
        place = ImportPlace(python, env=facts.env, installed=others, packages=packages, log=self.turn.log)
        report = verify_wheel(wheel.path, expected, place=None if others else place)
        if report.passed and others:
            install(self.turn, self.project, wheel.path, inside)
            report = add_import(report, expected, place)
            if not report.passed:
                with changing(ready, facts.workspace, what=self.turn.step.id):
                    forget_built(ready, distribution=self.project.distribution, env=facts.env)
        return self._judge(wheel, report)

    def _judge(self, wheel: BuiltWheel, report: AuditReport) -> AuditReport:
        """Write the report into the log; set a wheel that failed aside and raise AuditError."""
        with self.turn.log.open("a", encoding="utf-8") as file:
            file.write("\n".join(["", "# checks", *report_lines(report), ""]))
        if report.jit_sources and not report.targets:
            sources = counted(len(report.jit_sources), "HIP source")
            log.note(
                f"no kernels are compiled into {wheel.path.name}: it brings {sources} for the user's machine"
            )
        for finding in report.findings:
            if finding.severity == "warning":
                log.warn(f"{wheel.path.name}: {finding.line()}")
        if not report.passed:
            aside = reject(wheel.path, report, self.turn.log, self.turn.facts.workspace.rejected)
            said = "\n".join(f"  {finding.line()}" for finding in report.errors)
            tips = [finding.tip for finding in report.errors if finding.tip]
            raise AuditError(
                f"{wheel.path.name} is not what was asked for:\n{said}\n"
                f"kept aside with its log: {aside.parent}",
                tip=tips[0] if tips else "--no-verify takes it all the same, and says so in the summary",
            )
        return report

    # -- the output -----------------------------------------------------------------------------------------

    def _refuse_foreign(self) -> None:
        for folder in self.folders:
            refuse_foreign(
                self.turn.facts.workspace, folder, self.project.distribution, self.turn.ready.python_tag
            )

    def _collect(self, wheel: Path, folder: Path) -> Path:
        return collect(
            self.turn.facts.workspace,
            wheel,
            folder,
            distribution=self.project.distribution,
            python_tag=self.turn.ready.python_tag,
        )
