"""``install-tools``: a layer for each project, with what it needs to be built.

Layers are made before the first project is built: what one project needs is not exchanged while another
is being compiled with it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from rocm_wheels.core import errors, log, parallel
from rocm_wheels.models import project, project_names
from rocm_wheels.pipeline import build_environment, tools
from rocm_wheels.pipeline.outputs import OutputFile
from rocm_wheels.pipeline.planner import Planner, decide_verdict
from rocm_wheels.pipeline.step import Step
from rocm_wheels.pipeline.step_run import StepRun
from rocm_wheels.sdk import interpreters, resolve_packages
from rocm_wheels.sdk.build_environment import BuildEnvironment, ensure_layer, install_requirements

TOOLS_VERSION = "3"
_LAYERS_AT_A_TIME = 4  # each waits for an index most of the time


def settle_install_tools(planner: Planner, step: Step, inputs: dict[str, str]) -> Step:
    """Return the step with the requirements of all projects, and the digests of the files that hold them.

    Under a lock with tools, those are what is installed, whatever met the requirements else.
    """
    facts, locked = planner.facts, planner.facts.locked_tools
    inputs["step"] = TOOLS_VERSION
    needed: list[str] = []
    for provided in facts.python.provided.values():
        if provided.wheel is not None and provided.requires:
            inputs[f"requirements of {provided.project}"] = ", ".join(provided.requires)
            needed += provided.requires
    lines = [interpreters.format_install_command(needed)] if needed else []
    for name, tree in facts.trees.items():
        words: list[str] = []
        for file, digest in tree.files.items():
            inputs[f"{file} of {name}"] = digest
            words += ["--requirement", str(tree.source / file)]
        if locked is None:
            inputs[f"tools of {name}"] = " ".join(facts.tools)
            lines.append(interpreters.format_install_command([*facts.tools, *words]))
        else:
            packages = locked.projects.get(name, {})
            inputs[f"locked tools of {name}"] = resolve_packages.digest_packages(packages)
            pins = [f"{package}=={entry.version}" for package, entry in packages.items()]
            lines.append(interpreters.format_install_command(["--no-deps", "--require-hashes", *pins]))
    inputs["ROCm packages"] = planner.ready.content
    inputs["environment"] = str(planner.ready.environment.prefix)
    return decide_verdict(planner, step, inputs, command=" && ".join(dict.fromkeys(lines)))


def run_install_tools(step_run: StepRun) -> None:
    """Install what each project needs to be built, and note what that is now. Raises SdkError."""
    facts, ready = step_run.facts, step_run.ready
    given_wheels = [wheel for wheel in facts.python.provided.values() if wheel.wheel is not None]
    packages: dict[str, dict[str, str]] = {}
    files: dict[str, dict[str, dict[str, str]]] = {}
    outputs: dict[str, OutputFile] = {}
    with build_environment.hold_environment(ready, facts.workspace, purpose=step_run.step.id) as unfinished:
        needed = [line for wheel in given_wheels for line in wheel.requires]
        if needed and facts.locked_tools is not None:
            log.log_warning(f"required by given wheels, and in no lock: {', '.join(needed)}")
        _install_missing(step_run, needed, unfinished=unfinished)
        installer = _ToolsInstaller(step_run, unfinished=unfinished)
        done = parallel.run_in_parallel(installer.install_project, facts.trees, jobs=_LAYERS_AT_A_TIME)
        for (name, tree), installed in zip(facts.trees.items(), done, strict=True):
            step_run.record_packages(installed, locked=installer.locked is not None, project=name)
            files[name] = {package: asdict(entry) for package, entry in installed.items()}
            required = build_environment.find_requirement_closure(
                (*build_environment.read_required_names(facts.tools, ()), *tree.requires),
                build_environment.list_installed_packages(
                    build_environment.layer_packages_folder(name, ready, facts.workspace)
                ),
            )
            packages[name] = {package.name: package.identity() for package in required.values()}
            outputs.update(
                {f"{name} {each.name}": OutputFile.from_path(each.record) for each in required.values()}
            )
    step_run.record_success(tuple(outputs[name] for name in sorted(outputs)), packages=packages, files=files)


class _ToolsInstaller:
    """Installs the layers of one environment; what the line's tools come to is asked once, if at all."""

    def __init__(self, step_run: StepRun, *, unfinished: bool) -> None:
        self._step_run, self._unfinished = step_run, unfinished
        self._facts, self._ready = step_run.facts, step_run.ready
        self._python = self._facts.python
        self.locked = self._facts.locked_tools
        sdk = self._facts.request.sdk
        # the digests say which files are meant, so that they may lie beside ROCm's
        links = sdk.find_links if self.locked is not None else None
        self._source = replace(sdk.tools_source, find_links=links)
        self._line: resolve_packages.Resolution | None = None
        self._line_lock = threading.Lock()

    def install_project(self, name: str) -> Mapping[str, resolve_packages.InstalledPackage]:
        """Bring the layer of a project up to date, and return what it was installed from. Raises SdkError."""
        try:
            return self._install_project(name)
        except errors.SdkError as error:
            if self.locked is None and not interpreters.is_transient_failure(error.message):
                option = f"--no-build-{project_names.get_option_name(name)}"
                error.tip = f"see the requirements of {name}; {option} leaves it out"
            raise

    def _install_project(self, name: str) -> Mapping[str, resolve_packages.InstalledPackage]:
        is_new = not build_environment.find_project_layer(
            name, self._ready, self._facts.workspace
        ).prefix.exists()
        layer = self._ensure_layer(name)
        installed = self._find_current(name, layer)
        if installed is not None:
            return installed
        resolution = self._resolve(name, layer)
        if not is_new:
            layer = self._ensure_layer(name, fresh=True)
        resolve_packages.install_packages(
            layer.python, resolution, self._source, self._facts.env,
            activity=f"installing the tools of {name}", cwd=layer.prefix, on_line=self._step_run.echo_line,
            backends=None if self.locked is None else self.locked.backends,
            index_options=build_environment.read_index_options(self._list_files(name)), held_by=self._held_by,
        )  # fmt: skip
        return resolve_packages.note_installed(
            layer.prefix / resolve_packages.PACKAGES_NOTE, self._locate_packages(name), resolution
        )

    @property
    def _held_by(self) -> str:
        locked = self._facts.locked
        return str(locked.path) if locked is not None and self.locked is not None else ""

    def _resolve_line(self) -> resolve_packages.Resolution:
        with self._line_lock:  # whoever comes first asks for all
            if self._line is None:
                self._line = tools.resolve_line_tools(
                    self._facts.tools,
                    resolve_packages.PackageTarget(self._ready.environment.python),
                    self._source,
                    self._facts.env,
                    cwd=self._ready.environment.prefix,
                    platform=self._facts.request.platform,
                )
            return self._line

    def _ensure_layer(self, name: str, *, fresh: bool = False) -> BuildEnvironment:
        return ensure_layer(
            self._ready.environment,
            build_environment.find_project_layer(name, self._ready, self._facts.workspace).prefix,
            build_environment.list_packages_below(
                project.load_project(name), self._ready, self._facts.workspace
            ),
            self._facts.env,
            python_tag=self._ready.python_tag,
            fresh=fresh,
            on_line=self._step_run.echo_line,
        )

    def _find_current(
        self, name: str, layer: BuildEnvironment
    ) -> Mapping[str, resolve_packages.InstalledPackage] | None:
        """Return what a layer was installed from, if that is there whole and still is what is needed."""
        installed = resolve_packages.read_installed(layer.prefix / resolve_packages.PACKAGES_NOTE)
        folder = self._locate_packages(name)
        if self._unfinished and (halves := build_environment.find_half_installed(folder)):
            log.log_note(f"partly installed, to be installed again: {', '.join(halves)}")
            return None
        if (
            installed is None
            or not installed.keys() <= build_environment.list_installed_packages(folder).keys()
        ):
            return None
        if self.locked is not None:
            misfits = resolve_packages.list_misfits(self.locked.projects.get(name, {}), installed)
            return None if misfits else installed
        versions = {package: entry.version for package, entry in installed.items()}
        markers = tools.make_marker_environment(self._python.version, self._facts.request.platform)
        unmet = tools.find_unmet_requirements(self._facts.tools, self._list_files(name), versions, markers)
        return None if unmet else installed

    def _resolve(self, name: str, layer: BuildEnvironment) -> resolve_packages.Resolution:
        """Return what is to be installed; versions that are there already are taken where they fit."""
        if self.locked is not None:
            return resolve_packages.Resolution(self.locked.projects.get(name, {}))
        installed = resolve_packages.read_installed(layer.prefix / resolve_packages.PACKAGES_NOTE) or {}
        present = {package: entry.version for package, entry in installed.items() if entry.version}
        line = self._resolve_line()
        if not present and not self._list_files(name):
            return line  # it has nothing of its own to ask for
        versions = {package: locked.version for package, locked in line.packages.items()}
        return tools.resolve_project_tools(
            self._facts.tools,
            self._list_files(name),
            resolve_packages.PackageTarget(self._ready.environment.python),
            self._source,
            self._facts.env,
            cwd=layer.prefix,
            version=self._python.version,
            platform=self._facts.request.platform,
            preferred={**versions, **present},
        )

    def _list_files(self, name: str) -> list[Path]:
        tree = self._facts.trees[name]
        return [tree.source / file for file in tree.files]

    def _locate_packages(self, name: str) -> Path:
        return build_environment.layer_packages_folder(name, self._ready, self._facts.workspace)


def _install_missing(step_run: StepRun, requirements: Sequence[str], *, unfinished: bool) -> None:
    """Install what given wheels require, and again what an installer that was killed left there by half."""
    ready, sdk = step_run.ready, step_run.facts.request.sdk
    halves = build_environment.find_half_installed(ready.site_packages) if unfinished else ()
    if halves:
        log.log_note(f"partly installed, to be installed again: {', '.join(halves)}")
    install_requirements(
        ready.environment,
        requirements,
        reinstall=halves,
        env=step_run.facts.env,
        on_line=step_run.echo_line,
        source=interpreters.PackageSource(find_links=sdk.find_links, cache_dir=sdk.cache_dir),
    )
