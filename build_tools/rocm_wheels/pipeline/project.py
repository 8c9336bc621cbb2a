"""One project's step: is it current; else build, check, and collect its wheel."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.audit.findings import AuditReport
from rocm_wheels.audit.imports import ImportPlace
from rocm_wheels.audit.report import add_import, reject, report_lines, verify_wheel
from rocm_wheels.audit.subject import Expectation
from rocm_wheels.compile.frontend import BuiltWheel, build_wheel
from rocm_wheels.compile.rocm_init import Preloads, ask_preloads
from rocm_wheels.errors import AuditError, DataError
from rocm_wheels.model.project import Project, load_project
from rocm_wheels.pipeline.built import Built
from rocm_wheels.pipeline.collect import collect, refuse_foreign
from rocm_wheels.pipeline.environment import digest_of_installed, forget_built, install_built
from rocm_wheels.pipeline.inputs import PlannedBuild, Setting, plan_build
from rocm_wheels.pipeline.progress import LiveStep, step
from rocm_wheels.pipeline.provenance import content, part_of, put_inside
from rocm_wheels.pipeline.stamps import Output, Stamp, read_stamp, sha256_of, why_run, write_stamp
from rocm_wheels.sdk.install import install_requirements
from rocm_wheels.sdk.uv import PackageSource


@dataclass(frozen=True)
class ProjectStep:
    """The step of one project: everything it needs, and what is made of it."""

    project: Project
    setting: Setting
    built: Mapping[str, Built]

    @cached_property
    def planned(self) -> PlannedBuild:
        """Request, environment and inputs, settled from what is known now."""
        triton = self.built.get("triton") if "triton" in self.project.build.after else None
        return plan_build(
            self.project,
            self.setting,
            triton_requirement=triton.requirement if triton else None,
            wheels=self._wheels_needed(),
        )

    def _wheels_needed(self) -> Mapping[str, str]:
        """Return the digests of the wheels that this one is built against: this run's, or those installed."""
        found: dict[str, str] = {}
        for name in self.project.build.after:
            if name in self.built:
                found[f"wheel of {name}"] = self.built[name].content
            elif there := digest_of_installed(self.setting.ready, load_project(name).distribution):
                found[f"wheel of {name}"] = there
        return found

    @property
    def name(self) -> str:
        """The step's name, in logs and stamps."""
        return f"build-{self.project.name}-{self.setting.ready.python_tag}"

    def run(self) -> Built:
        """Bring the project's wheel into the output folder; do nothing when it is there already."""
        request = self.setting.request
        stamp = read_stamp(self.setting.workspace.steps, self.name)
        reason = why_run(stamp, self.planned.inputs)
        if reason is None and stamp is not None:
            unchecked = request.verify and not stamp.facts.get("verified")
            reason = "--clean" if request.clean else "it was not verified" if unchecked else None
        if reason is None and stamp is not None:
            return self._again(stamp)
        self._refuse_foreign()
        log_file = self.setting.workspace.logs / self.setting.run / f"{self.name}.log"
        with step(self.name, why=reason or "", log_file=log_file) as shown:
            if self.planned.attention is not None:
                log.note(f"flash attention: {self.planned.attention}")
            self._install_needed()
            wheel = self._build(log_file, shown)
            result = self._check_and_collect(wheel, log_file, shown)
        facts = {
            "version": result.version,
            "targets": list(result.targets),
            "verified": result.verified,
            "content": result.content,
            "lock": self._lock_digest,
        }
        stamp = Stamp(self.name, self.planned.inputs, (result.output,), facts)
        write_stamp(self.setting.workspace.steps, stamp)
        return result

    @cached_property
    def _lock(self) -> bytes | None:
        """The lock that this wheel is built from: what goes into it."""
        locked = self.setting.locked
        return None if locked is None else part_of(locked.lock, self.project.name)

    @property
    def _lock_digest(self) -> str:
        return "" if self._lock is None else hashlib.sha256(self._lock).hexdigest()

    def _again(self, stamp: Stamp) -> Built:
        """Take the wheel of an earlier run; it is copied when the output folder is another one now."""
        output, facts = stamp.outputs[0], dict(stamp.facts)
        source, digest = Path(output.path), output.sha256
        target = self.setting.request.output / source.name
        renewed = self._lock is not None and facts["lock"] != self._lock_digest
        if target != source or renewed:
            self._refuse_foreign()
            if self._lock is not None and renewed:
                source, _ = put_inside(source, self.setting.workspace.fresh / self.name, self._lock)
                digest, facts["lock"] = sha256_of(source), self._lock_digest
                log.note(f"{self.name}: the lock of this run is put into {source.name}")
            self._collect(source)
            output = Output.of(target, digest)
            write_stamp(self.setting.workspace.steps, Stamp(stamp.step, stamp.inputs, (output,), facts))
            if renewed:
                source.unlink()
        log.note(f"{self.name}: up to date")
        targets = stamp.facts["targets"]
        assert isinstance(targets, list)
        return Built(
            project=self.project,
            version=str(stamp.facts["version"]),
            output=output,
            content=str(facts["content"]),
            targets=tuple(map(str, targets)),
            verified=bool(stamp.facts["verified"]),
            again=True,
        )

    def _build(self, log_file: Path, shown: LiveStep) -> BuiltWheel:
        setting = self.setting
        preloads: Preloads | None = None
        if self.project.checks.rocm_init:
            preloads = ask_preloads(setting.ready.environment.python, setting.request.platform, setting.env)
            if text := preloads.warning():
                log.warn(text)

        def install(files: Sequence[Path]) -> None:
            wanted: list[str | Path] = [*setting.tools, *files]
            install_requirements(
                setting.ready.environment,
                wanted,
                env=setting.env,
                on_line=shown.line,
                source=PackageSource(cache_dir=setting.request.sdk.cache_dir),
            )

        return build_wheel(
            self.planned.request,
            base=setting.env,
            env=self.planned.environment,
            python=setting.ready.environment.python,
            python_tag=setting.ready.python_tag,
            out_dir=setting.workspace.fresh / self.name,
            parking=setting.workspace.trees,
            log=log_file,
            install_requirements=install,
            preloads=preloads,
            clean=setting.request.clean,
            on_line=shown.line,
        )

    def _check_and_collect(self, wheel: BuiltWheel, log_file: Path, shown: LiveStep) -> Built:
        """Check a fresh wheel; put it into the output folder, or aside with its log."""
        inside, fault = "", None
        try:
            inside = content(wheel.path) if self._lock is None else self._put_lock(wheel.path)
        except DataError as damage:
            fault = damage  # the checks say more of it
        report: AuditReport | None = None
        if self.setting.request.verify:
            shown.line(f"checking {wheel.path.name}")
            report = self._verify(wheel, inside, log_file, shown)
        if fault is not None:
            raise fault
        digest = report.sha256 if report else sha256_of(wheel.path)
        if report is None and self.project.build.installed_for_others:
            self._install(self.project, wheel.path, inside)
        target = self._collect(wheel.path)
        wheel.path.unlink()
        return Built(
            project=self.project,
            version=wheel.version,
            output=Output.of(target, digest),
            content=inside,
            targets=report.targets if report else (),
            verified=report is not None,
            again=False,
            held=report.held if report else None,
        )

    def _put_lock(self, wheel: Path) -> str:
        assert self._lock is not None
        return put_inside(wheel, wheel.parent, self._lock)[1]

    def _verify(self, wheel: BuiltWheel, inside: str, log_file: Path, shown: LiveStep) -> AuditReport:
        """Check a wheel as a file; then, where it is right, import it where others will need it."""
        setting, others = self.setting, self.project.build.installed_for_others
        pins = self.planned.request.triton_requirement
        expected = Expectation(
            project=self.project,
            platform=setting.request.platform,
            version=wheel.version,
            python_tag=setting.ready.python_tag,
            targets=setting.targets,
            rocm_version=setting.ready.sdk.version,
            requirements=(pins,) if pins and self.project.checks.requires_rocm else (),
        )
        place = ImportPlace(
            setting.ready.environment.python,
            env=setting.env,
            installed=others,
            log=log_file,
        )
        report = verify_wheel(wheel.path, expected, place=None if others else place)
        if report.passed and others:
            shown.line(f"installing {wheel.path.name}")
            self._install(self.project, wheel.path, inside)
            report = add_import(report, expected, place)
            if not report.passed:
                forget_built(setting.ready, distribution=self.project.distribution, env=setting.env)
        return self._judge(wheel, report, log_file)

    def _judge(self, wheel: BuiltWheel, report: AuditReport, log_file: Path) -> AuditReport:
        """Write the report into the log; set a wheel that failed aside and raise AuditError."""
        setting = self.setting
        with log_file.open("a", encoding="utf-8") as file:
            file.write("\n".join(["", "# checks", *report_lines(report), ""]))
        for finding in report.findings:
            if finding.severity == "warning":
                log.warn(f"{wheel.path.name}: {finding.line()}")
        if not report.passed:
            aside = reject(wheel.path, report, log_file, setting.workspace.rejected)
            said = "\n".join(f"  {finding.line()}" for finding in report.errors)
            tips = [finding.tip for finding in report.errors if finding.tip]
            raise AuditError(
                f"{wheel.path.name} is not what was asked for:\n{said}\n"
                f"kept aside with its log: {aside.parent}",
                tip=tips[0] if tips else "--no-verify takes it all the same, and says so in the summary",
            )
        return report

    def _install_needed(self) -> None:
        """Bring the wheels that this project is built against into the build environment."""
        for one in (self.built[name] for name in self.project.build.after if name in self.built):
            if one.project.build.installed_for_others:
                self._install(one.project, one.path, one.content)

    def _install(self, project: Project, wheel: Path, content: str) -> None:
        install_built(
            self.setting.ready, wheel, content, distribution=project.distribution, env=self.setting.env
        )

    def _refuse_foreign(self) -> None:
        setting = self.setting
        refuse_foreign(
            setting.workspace, setting.request.output, self.project.distribution, setting.ready.python_tag
        )

    def _collect(self, wheel: Path) -> Path:
        setting = self.setting
        return collect(
            setting.workspace,
            wheel,
            setting.request.output,
            distribution=self.project.distribution,
            python_tag=setting.ready.python_tag,
        )
