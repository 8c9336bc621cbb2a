"""``install-tools``: a layer for each project, with what it needs to be built.

Layers are made before the first project is built: what one project needs is not exchanged while another
is being compiled with it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property

from rocm_wheels.core import errors, log, parallel
from rocm_wheels.models import project
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
    packages: dict[str, dict[str, str]] = {}
    files: dict[str, dict[str, dict[str, str]]] = {}
    outputs: dict[str, OutputFile] = {}
    with build_environment.hold_environment(ready, facts.workspace, purpose=step_run.step.id) as unfinished:
        _install_missing(step_run, unfinished=unfinished)
        installer = _ToolsInstaller(step_run, unfinished=unfinished)
        done = parallel.run_in_parallel(installer.install_project, facts.trees, jobs=_LAYERS_AT_A_TIME)
        for (name, tree), installed in zip(facts.trees.items(), done, strict=True):
            step_run.record_packages(installed, locked=facts.locked_tools is not None, project=name)
            files[name] = {package: asdict(entry) for package, entry in installed.items()}
            there = build_environment.list_installed_packages(
                build_environment.layer_packages_folder(name, ready, facts.workspace)
            )
            asked = (*build_environment.list_required_names(facts.tools), *tree.requires)
            required = build_environment.find_requirement_closure(asked, there)
            packages[name] = {package.name: package.identity() for package in required.values()}
            outputs |= {
                f"{name} {each.name}": OutputFile.from_path(each.record) for each in required.values()
            }
    step_run.record_success(tuple(outputs[name] for name in sorted(outputs)), packages=packages, files=files)


def _install_missing(step_run: StepRun, *, unfinished: bool) -> None:
    """Install what given wheels require; all of it again where an installer was killed meanwhile."""
    ready, facts, sdk = step_run.ready, step_run.facts, step_run.facts.request.sdk
    given = [wheel for wheel in facts.python.provided.values() if wheel.wheel is not None]
    needed = [line for wheel in given for line in wheel.requires]
    if needed and facts.locked_tools is not None:
        log.log_warning(f"required by given wheels, and in no lock: {', '.join(needed)}")
    install_requirements(
        ready.environment,
        needed,
        reinstall=tuple(build_environment.list_installed_packages(ready.site_packages) if unfinished else ()),
        env=facts.env,
        on_line=step_run.echo_line,
        source=interpreters.PackageSource(find_links=sdk.find_links),
    )


@dataclass(frozen=True)
class _ToolsInstaller:
    """Installs the layers of one environment; what the line's tools come to is asked once, if at all.

    ``unfinished``: an installer was killed here: it takes packages for installed that are there by half, so
    that every layer is made anew.
    """

    step_run: StepRun
    unfinished: bool
    line_lock: threading.Lock = field(default_factory=threading.Lock)

    @cached_property
    def resolver(self) -> tools.ToolsResolver:
        """What asks for the tools of the release line, and of a project."""
        facts, environment = self.step_run.facts, self.step_run.ready.environment
        return tools.ToolsResolver(
            facts.tools,
            resolve_packages.PackageTarget(environment.python),
            # the digests of a lock say which files are meant, so that they may lie beside ROCm's
            replace(
                facts.request.sdk.tools_source,
                find_links=None if facts.locked_tools is None else facts.request.sdk.find_links,
            ),
            facts.env,
            environment.prefix,
            facts.python.version,
            facts.request.platform,
        )

    @cached_property
    def line(self) -> resolve_packages.Resolution:
        """What the line's tools come to."""
        return self.resolver.resolve()

    def install_project(self, name: str) -> Mapping[str, resolve_packages.InstalledPackage]:
        """Bring the layer of a project up to date, and return what it was installed from. Raises SdkError."""
        try:
            return self._install_project(name)
        except errors.SdkError as error:
            if self.step_run.facts.locked_tools is None and not interpreters.is_transient_failure(
                error.message
            ):
                error.tip = f"see the requirements of {name}; name PROJECTs without it"
            raise

    def _install_project(self, name: str) -> Mapping[str, resolve_packages.InstalledPackage]:
        facts, ready, locked = self.step_run.facts, self.step_run.ready, self.step_run.facts.locked_tools
        prefix = build_environment.find_project_layer(name, ready, facts.workspace).prefix
        folder = build_environment.layer_packages_folder(name, ready, facts.workspace)
        files = [facts.trees[name].source / file for file in facts.trees[name].files]

        def make_layer(*, fresh: bool = False) -> BuildEnvironment:
            below = build_environment.list_packages_below(project.load_project(name), ready, facts.workspace)
            return ensure_layer(
                ready.environment, prefix, below, facts.env, python_tag=ready.python_tag, fresh=fresh,
                on_line=self.step_run.echo_line,
            )  # fmt: skip

        is_new = not prefix.exists()
        layer, note = make_layer(), prefix / resolve_packages.PACKAGES_NOTE
        installed = resolve_packages.read_installed(note)
        versions = {package: entry.version for package, entry in (installed or {}).items()}
        there = build_environment.list_installed_packages(folder).keys()
        is_whole = installed is not None and installed.keys() <= there and not self.unfinished
        if installed is not None and is_whole:  # is it what is needed?
            if locked is not None:
                misfits = resolve_packages.list_misfits(locked.projects.get(name, {}), installed)
            else:
                misfits = tools.find_unmet_requirements(
                    facts.tools,
                    files,
                    versions,
                    version=facts.python.version,
                    platform=facts.request.platform,
                )
            if not misfits:
                return installed

        if locked is not None:
            resolution = resolve_packages.Resolution(locked.projects.get(name, {}))
        else:
            with self.line_lock:  # whoever comes first asks for all
                resolution = self.line
            present = {package: version for package, version in versions.items() if version}
            if present or files:  # versions that are there already are taken where they fit
                preferred = {package: entry.version for package, entry in resolution.packages.items()}
                resolution = replace(self.resolver, cwd=prefix).resolve(files, {**preferred, **present})
        if not is_new:
            layer = make_layer(fresh=True)
        resolve_packages.install_packages(
            layer.python, resolution, self.resolver.source, facts.env,
            activity=f"installing the tools of {name}", cwd=layer.prefix, on_line=self.step_run.echo_line,
            backends=None if locked is None else locked.backends,
            index_options=build_environment.read_requirement_files(files).index_options,
            held_by=str(facts.locked.path) if facts.locked is not None and locked is not None else "",
        )  # fmt: skip
        return resolve_packages.note_installed(note, folder, resolution)
