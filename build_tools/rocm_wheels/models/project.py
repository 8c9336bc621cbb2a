"""Read a project that we build, as its recipe ``<name>.yaml`` states it.

The file name is the project's name everywhere: ``pytorch_audio.yaml`` gives
``--pytorch-audio-dir``, ``--build-pytorch-audio`` and the default checkout folder
``repos/pytorch_audio``. Where recipes lie: ``project_names``. Names are known without reading YAML; recipes
are read on use.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version
from pydantic import AfterValidator, Field, field_validator, model_validator

from rocm_wheels.core import errors, records, tables
from rocm_wheels.models import estimates, project_names, release_lines


def _check_inside(path: str) -> str:
    """Return a relative path that does not leave its tree; ValueError for any other."""
    pure = PurePosixPath(path)
    if not path or pure.is_absolute() or ".." in pure.parts or "\\" in path or ":" in path:
        raise ValueError("it must be a relative path inside its tree, with /")
    return path


_TreePath = Annotated[str, AfterValidator(_check_inside)]
_Repository = Annotated[str, records.require_pattern(r".*[/:].*|TODO\b.*", "a repository: its URL or a path")]
_ImportName = Annotated[
    str, records.require_pattern(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", "what Python can import")
]
_TopName = Annotated[
    str,
    records.require_pattern(r"[^/]*[^/*?][^/]*", "a name, and no pattern of everything"),
]
_Series = Annotated[str, records.require_pattern(r"\d+\.\d+", "a series of torch, such as 2.10")]


class PinFile(records.Record):
    """A file of the torch tree that holds the commit of one project, for trees without ``related_commits``.

    ``origin`` is the repository that the commit is of, where it is not the source's.
    """

    file: _TreePath
    origin: str | None = None


class ReleaseBranch(records.Record):
    """The project's release branch that goes with a torch tree (``--release``).

    ``version_file`` of the torch tree holds a version (``3.7.0``); ``ref`` is made from it by
    ``{major}`` and ``{minor}``.
    """

    version_file: _TreePath
    ref: str

    @field_validator("ref")
    @classmethod
    def _two_numbers(cls, value: str) -> str:
        if sorted(re.findall(r"\{[^}]*\}?", value)) != ["{major}", "{minor}"]:
            raise ValueError("it must name {major} and {minor} once each, and nothing else in braces")
        return value


class ProjectSource(records.Record):
    """Where the sources come from. An option goes before a pin in the torch tree, a pin before ``ref``.

    Pins are looked for in ``related_commits`` (under that name), then in ``pin_files``, in
    their order. Without ``ref`` there is no default: without a pin, nothing is checked out.
    """

    origin: _Repository
    ref: str | None = None
    related_commits: str | None = None  # its name in the third column of torch's related_commits
    pin_files: tuple[PinFile, ...] = ()
    release: ReleaseBranch | None = None
    windows: ProjectSource | None = None  # the whole source on Windows, where it is another one
    fetch_jobs: int | None = None

    @model_validator(mode="after")
    def _something_to_check_out(self) -> ProjectSource:
        if self.ref is None and self.related_commits is None and not self.pin_files:
            raise ValueError("without `ref` there must be a pin: `related_commits` or `pin_files`")
        if self.windows is not None and self.windows.windows is not None:
            raise ValueError("`windows` cannot have a `windows` of its own")
        return self

    def get_platform_source(self, platform: project_names.Platform) -> ProjectSource:
        """Return the source on a platform."""
        return self.windows if platform == "windows" and self.windows is not None else self


class HipifyRecipe(records.Record):
    """How CUDA sources become HIP sources.

    ``script``: a program in the tree rewrites the tree at checkout. ``build``: the
    project's own build does it (torch's cpp_extension). ``variables``: nothing to translate,
    but ``variables`` for its build are left in ``build_env.json`` in the tree (git does not see
    it). ``none``: nothing at all. ``platforms``: where ``--hipify`` is the default.
    """

    by: Literal["script", "build", "variables", "none"]
    script: str | None = None
    variables: Mapping[str, str] | None = None
    reason: str | None = None
    platforms: tuple[project_names.Platform, ...] = ("linux", "windows")

    @model_validator(mode="after")
    def _script_or_reason(self) -> HipifyRecipe:
        if (self.by == "script") != (self.script is not None):
            raise ValueError("`script` belongs to `by: script` and to nothing else")
        if (self.by == "variables") != (self.variables is not None):
            raise ValueError("`variables` belong to `by: variables` and to nothing else")
        if self.by != "script" and not self.reason:
            raise ValueError("`reason` must say why no script runs at checkout")
        return self


class StatedVersion(records.Record):
    """A base version that a Python file of the tree assigns to ``variable``, for the project itself."""

    file: _TreePath
    variable: str = "__version__"


class VersionRecipe(records.Record):
    """How a build learns its version.

    ``file`` holds the base version (relative to the tree); without it the project makes
    its own and only ``suffix_variable`` is set (without that, too, the wheel keeps the project's own).
    ``variables`` receive the whole version. ``append_suffix``: the finished wheel is given the suffix, for
    a build that reads none of all this.
    ``stated``: where a project that makes its own says which; only a lock reads it.
    """

    file: str | None = None
    stated: StatedVersion | None = None
    variables: tuple[str, ...] = ()
    suffix_variable: str | None = None
    build_number: str | None = None
    append_suffix: bool = False
    git_tag: bool = True  # dev builds carry +git<commit>

    @model_validator(mode="after")
    def _one_place(self) -> VersionRecipe:
        if self.file is not None and self.stated is not None:
            raise ValueError("`file` and `stated` exclude each other")
        if self.append_suffix and (self.file or self.variables or self.suffix_variable):
            raise ValueError("`append_suffix`: this build is told its version already")
        return self


class AcrossPythons(records.Record):
    """One build tree for all Pythons; what belongs to one of them is made again for the next.

    ``again``: globs below the source tree. What they match is deleted when another Python comes: anything
    inside the build folders; outside of them only what builds have left there, which git ignores.
    """

    again: tuple[_TreePath, ...]
    reason: str


class AcrossFamilies(records.Record):
    """One wheel serves all families: it is built once, with code for the targets of all of them."""

    reason: str


class PinnedProject(records.Record):
    """A project of ours that the wheel requires at the very version that it was built against.

    ``variable``: what its own build reads that version from, where it does.
    """

    project: str
    variable: str | None = None


class RefusedVersions(records.Record):
    """Versions of a ``project`` that it ``needs`` which it cannot be built against, and the ``reason``.

    ``versions``: as PEP 440 specifies them; a pre-release counts as its release. A tree whose ``file`` lacks
    the ``text``, because it is newer or was changed, is not held to them.
    """

    project: str
    versions: str
    file: _TreePath
    text: str
    reason: str

    @field_validator("versions")
    @classmethod
    def _specified(cls, value: str) -> str:
        try:
            SpecifierSet(value)
        except InvalidSpecifier:
            raise ValueError("versions as requirements have them, such as >=2.14") from None
        return value

    def apply_to(self, source: Path, version: str) -> bool:
        """Tell whether a source tree is refused beside a version of the project."""
        file = source / self.file
        if Version(version).base_version not in SpecifierSet(self.versions) or not file.is_file():
            return False
        return self.text in file.read_text(encoding="utf-8", errors="replace")


class BuildDownload(records.Record):
    """What a project's own build downloads, unless ``variable`` names a folder that ``contains`` it.

    A variable without ``contains`` says by its value, 1, that the machine's own is taken. A tree without the
    file that it is ``named_in`` downloads none. Without ``variable`` an offline build does without.
    ``flash_attention``: only a build with it downloads this. A variable leaves it out: ``switch``, where it
    is 0.
    """

    what: str
    origin: str
    named_in: _TreePath
    variable: str | None = None
    contains: tuple[str, ...] = ()
    flash_attention: bool = False
    switch: str | None = None


class BuildRecipe(records.Record):
    """How a wheel comes out of the tree.

    ``folders``: the first that holds the front end's file is built in. ``requirements``
    are installed before, when present (of a ``pyproject.toml`` its ``build-system.requires``). Of the
    projects that it is built ``after`` (when they are built at all), it ``needs`` some to be installed while
    it is built; of those, its wheel ``pins`` some, and it ``refuses`` some versions.
    ``trees`` are the folders (relative to the tree) that hold objects and survive between builds of the
    same configuration; scikit-build-core is told the first. Each Python has its own, unless
    ``across_pythons`` says what one tree for all of them needs. ``configure_first``: CMake says in seconds
    whether hours of compiling will be in vain.
    ``only_named``: it is no part of all that a checkout, build, lock or matrix takes where none is named.
    ``unused``: requirements that its build states (``setup_requires``) and this build does without; PEP 517.
    ``generated``: what its own build leaves beside its sources and its .gitignore does not name, besides what
    hipify makes, which says so itself. Patterns as there: a name at any depth, with ``/`` in front a path
    from the tree's top, with ``/`` at the end a folder.
    """

    front_end: Literal["pep517", "setup.py"]
    folders: tuple[str, ...] = (".",)
    requirements: tuple[str, ...] = ()
    config_settings: tuple[str, ...] = ()
    trees: tuple[str, ...] = ("build",)
    after: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    pins: tuple[PinnedProject, ...] = ()
    refuses: tuple[RefusedVersions, ...] = ()
    platforms: tuple[project_names.Platform, ...] = ("linux", "windows")
    unused: tuple[str, ...] = ()
    installed_for_others: bool = False
    only_named: bool = False
    configure_first: bool = False
    across_pythons: AcrossPythons | None = None
    across_families: AcrossFamilies | None = None
    downloads: tuple[BuildDownload, ...] = ()
    generated: tuple[str, ...] = ("*.egg-info/", "__pycache__/", "*.so", "*.pyd", "*.dll", "*.dylib", "*.o")

    def list_generated(self) -> tuple[str, ...]:
        """Return the patterns of all that builds make in the tree: ``generated``, and the build folders."""
        folders = [f"/{PurePosixPath(folder, tree)}/" for folder in self.folders for tree in self.trees]
        return (*folders, *self.generated)

    @model_validator(mode="after")
    def _needs_come_before(self) -> BuildRecipe:
        if missing := [name for name in self.needs if name not in self.after]:
            raise records.make_record_error(
                f"`needs` has {', '.join(missing)}, which is not in `after`", "needs"
            )
        named = {
            "pins": [pin.project for pin in self.pins],
            "refuses": [rule.project for rule in self.refuses],
        }
        for key, names in named.items():
            if missing := [name for name in names if name not in self.needs]:
                raise records.make_record_error(
                    f"`{key}` has {', '.join(missing)}, which is not in `needs`", key
                )
        if self.across_families and self.installed_for_others:
            raise ValueError("`across_families`: what others are built against has their family's code alone")
        return self


class DeviceCodeRule(records.Record):
    """What a library in the wheel must hold: ``all`` requested targets, a ``subset``, or ``none``."""

    files: _TreePath  # a glob on the path inside the wheel
    expect: Literal["all", "subset", "none"]
    reason: str
    platforms: tuple[project_names.Platform, ...] = ("linux", "windows")
    required: bool = True  # at least one file must match


class AllowedContents(records.Record):
    """What the wheel may install beside its package ``import_name``, as globs; anything else is an error.

    ``names``: top-level names of site-packages. ``scripts``: programs, of entry points or files.
    ``entry_points``: groups of other entry points. ``data``: files below the environment (``share/man/*``,
    headers as ``headers/*``). ``startup_files``: ``.pth`` files, which Python reads whenever it starts.
    """

    names: tuple[_TopName, ...] = ()
    scripts: tuple[str, ...] = ()
    entry_points: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    startup_files: tuple[str, ...] = ()


class WheelChecks(records.Record):
    """What a finished wheel must be.

    ``import_variables``: what users must set, or it cannot be imported. ``import_needs_gpu``: it asks for the
    GPU when it is imported, which a machine without one leaves out.
    """

    import_name: _ImportName
    import_variables: Mapping[str, str] = Field(default_factory=dict)
    import_needs_gpu: bool = False
    rocm: Literal["torch.version.hip", "device code", "none"]
    rocm_init: str | None = None  # the generated module that starts the ROCm packages
    jit_sources: str | None = None  # a glob: HIP sources, for kernels that the user's machine compiles
    requires_rocm: bool = False  # METADATA requires rocm[libraries]==<the SDK's version>: else it is added
    files: tuple[_TreePath, ...] = ()  # globs: each must match a member
    contents: AllowedContents = Field(default_factory=AllowedContents)
    device_code: tuple[DeviceCodeRule, ...] = ()


class RepairRecipe(records.Record):
    """``exclude``: libraries that users have by other means: not grafted, and no fault of the wheel.

    ``library_dirs``: folders in the source tree (globs) where its build leaves libraries that it links to and
    does not install: what of them nothing else has is grafted.
    """

    exclude: tuple[str, ...] = ()
    library_dirs: tuple[_TreePath, ...] = ()


class InstallRecipe(records.Record):
    """What holds on a machine that the wheel is installed on.

    ``default_place``: its place (torch's is 1) among what `install` takes when nothing is named; such a one
    is held to the version that the release line of torch names. ``mismatch``: what happens beside a torch of
    another kind (CPU, CUDA). ``closed``: it is taken from the chosen index alone; where not, PyPI's wheel of
    that name does without a GPU and without our torch, and may come from there for whom requires it.
    """

    default_place: int | None = Field(default=None, ge=1)
    mismatch: str = "its own operations fail"
    closed: bool = True


class Project(records.Record):
    """A recipe. ``name`` is the recipe's file name; ``distribution`` is the wheel's.

    ``line_environment`` has variables for builds with a torch of one series (``2.10``),
    ``offline_environment`` those that keep a build from downloading. ``costs``: what a build takes; without
    them, as the table of steps says of a project. ``lines``: what goes with a release line of torch, where
    the table of lines has nothing of the project. ``hooks``: a Python file beside the recipe with ``HOOKS``
    (``rocm_wheels.compile.hooks.Hooks``), for what a recipe cannot say.
    """

    name: str
    distribution: str
    summary: str
    source: ProjectSource
    hipify: HipifyRecipe
    version: VersionRecipe
    build: BuildRecipe
    environment: Mapping[str, str] = Field(default_factory=dict)
    linux_environment: Mapping[str, str] = Field(default_factory=dict)
    windows_environment: Mapping[str, str] = Field(default_factory=dict)
    line_environment: Mapping[_Series, Mapping[str, str]] = Field(default_factory=dict)
    offline_environment: Mapping[str, str] = Field(default_factory=dict)
    checks: WheelChecks
    repair: RepairRecipe = Field(default_factory=RepairRecipe)
    costs: estimates.StepCosts | None = None
    hooks: str | None = None
    install: InstallRecipe = Field(default_factory=InstallRecipe)
    lines: Mapping[str, release_lines.LineCompanion] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _across_families_with_code(self) -> Project:
        if self.build.across_families and not self.has_device_code:
            raise ValueError("`across_families`: without device code a wheel serves all families anyway")
        return self

    def get_environment(
        self, platform: project_names.Platform, torch_line: str | None = None
    ) -> dict[str, str]:
        """Return the variables that the recipe sets on a platform, as they stand there.

        ``torch_line`` (``2.10``) is the series of the torch that is built, or built against.
        ``{targets}`` (separated by semicolons) and ``{rocm}`` (the root of the SDK) are filled in by
        ``compose_environment``.
        """
        special = self.linux_environment if platform == "linux" else self.windows_environment
        return {**self.environment, **special, **self.line_environment.get(torch_line or "", {})}

    @property
    def is_of_torch(self) -> bool:
        """Whether users need torch beside it: it is built after torch, or is torch."""
        return "pytorch" in (self.name, *self.build.after)

    @property
    def is_built_against_torch(self) -> bool:
        """Whether it is compiled against torch, so that it goes with that kind of torch alone."""
        return "pytorch" in self.build.needs

    @cached_property
    def normalized_name(self) -> str:
        """The name of the wheel as indexes spell it: small letters, with hyphens."""
        return canonicalize_name(self.distribution)

    @property
    def has_device_code(self) -> bool:
        """Whether a wheel may hold code for a GPU; where it may not, it is the same for all targets."""
        return any(rule.expect != "none" for rule in self.checks.device_code)

    def serves_every_family(self, platform: project_names.Platform) -> bool:
        """Tell whether one wheel is for all families: it has code for all of them, or for none."""
        rules = self.list_device_code_rules(platform)
        return self.build.across_families is not None or all(rule.expect == "none" for rule in rules)

    def list_device_code_rules(self, platform: project_names.Platform) -> tuple[DeviceCodeRule, ...]:
        """Return the rules about device code that hold on a platform."""
        return tuple(rule for rule in self.checks.device_code if platform in rule.platforms)


def load_project(name: str, folder: Path | None = None) -> Project:
    """Read one recipe (of a ``folder``, the one there).

    Raises DataError for an unknown name or a recipe that is not valid.
    """
    if folder is None and (file := project_names.find_recipes().get(name)):
        return read_recipe(file.path)
    names = project_names.list_project_names(folder)
    if folder is not None and name in names:
        return read_recipe(folder / f"{name}.yaml")
    where = f" ({folder})" if folder else ""
    raise errors.DataError(
        f"there is no project {name}{tables.suggest_name(name, names)}",
        tip=f"known projects{where}: {', '.join(names)}; --recipe-dir names a folder with more",
    )


@lru_cache
def read_recipe(path: Path) -> Project:
    """Read a recipe. Raises DataError for one that is not valid, or whose file is called otherwise."""
    project = records.load_record(path, Project)
    if project.name != path.stem:
        raise errors.DataError(f"{path}: name is {project.name}, but the file is called {path.name}")
    return project


def get_step_costs(name: str) -> estimates.StepCosts:
    """Return the stated costs of building a project, or of another kind of step."""
    table = estimates.load_estimate_table()
    if name in table.steps:
        return table.steps[name]
    costs = load_project(name).costs if name in project_names.find_recipes() else None
    return costs or table.default


def list_projects() -> list[Project]:
    """Return every project there is a recipe of, each after those it is built ``after``."""
    return sort_projects(load_project(name) for name in project_names.list_project_names())


def list_usual_projects() -> list[Project]:
    """Return what is meant where no project is named: torch, its companions, and what users have recipes of.

    The others that we ship are built on their own, against a torch that is there, and few want all of them.
    """
    return [project for project in list_projects() if not project.build.only_named]


def find_project_of(distribution: str) -> Project | None:
    """Return the project whose wheel is called so (a normalized name); ``None``: none of ours."""
    name = project_names.find_wheel_projects().get(distribution)
    return load_project(name) if name else None


def list_default_packages() -> tuple[str, ...]:
    """Return what `install` takes when nothing is named: the names of wheels, in their places."""
    places = {project.distribution: project.install.default_place for project in list_projects()}
    return tuple(sorted(filter(places.get, places), key=lambda name: (places[name] or 0, name)))


def sort_projects(projects: Iterable[Project]) -> list[Project]:
    """Sort projects so that each comes after those it is built ``after``; ties by name.

    A project named in ``after`` that is not among ``projects`` does not matter. Raises
    DataError for a cycle.
    """
    waiting = {project.name: project for project in sorted(projects, key=lambda p: p.name)}
    order: list[Project] = []
    while waiting:
        ready = [p for p in waiting.values() if not any(name in waiting for name in p.build.after)]
        if not ready:
            raise errors.DataError(f"recipes wait for each other: {', '.join(waiting)}")
        order.append(waiting.pop(ready[0].name))
    return order
