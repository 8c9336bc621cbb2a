"""What a run of ``build`` was asked for: everything from the command line, nothing from the disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, get_args

from rocm_wheels.core import errors, log
from rocm_wheels.models import gfx, project_names
from rocm_wheels.models.project import Project, load_project, sort_projects
from rocm_wheels.sdk import build_environment


@dataclass(frozen=True)
class SdkRequest(build_environment.EnvironmentSpec):
    """Which ROCm packages, from where, and whether into the active environment, that of ``python``."""

    current_env: bool = False


PlannedTest = Literal["smoke", "torch"]  # as `rocm-wheels test` has them, in the order of their steps
PLANNED_TESTS: tuple[PlannedTest, ...] = get_args(PlannedTest)


@dataclass(frozen=True)
class WheelsRequest:
    """What a command was asked for. Folders are absolute; ``chosen``: what is to be built (True) and what
    not (False); None: where its tree is there.

    A plan is of one cell of it, one Python and one set of targets: ``split_request`` makes those. Only a
    command has several ``pythons`` or is ``per_target``; a cell has ``sdk.python``, and in ``target_set`` the
    folder of the output that its wheels go to (``""``: the output itself). ``given_wheels`` are of projects
    that are not built, for others to be built against. ``set_env`` are variables for single projects, put
    over everything else. ``recipes`` are those that are not our own, by project. ``repair``: False keeps
    wheels as they were built; ``platform_tag``: what Linux wheels must be fit for and get, None: the oldest
    that their symbols allow.
    """

    sdk: SdkRequest
    install_rocm: bool
    output: Path
    work: Path
    sources: Mapping[str, Path]  # project → its tree, given or default
    given: frozenset[str]  # projects whose folder was given by an option
    chosen: Mapping[str, bool | None]
    platform: project_names.Platform
    pythons: tuple[Path, ...] = ()
    targets: str | None = None
    targets_variable: str | None = None
    per_target: bool = False
    target_set: str = ""
    build_number: str = "1"
    version_suffix: str | None = None
    release_type: str = "nightly"
    flash_attention: bool | None = None
    cache: Literal["ccache", "sccache"] | None = None
    unlisted_targets: bool = False  # also targets that the installed ROCm does not list
    given_wheels: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)
    set_env: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    clean: bool = False
    offline: bool = False
    lock: Path | None = None
    packaging: project_names.PackagingMode = "per-family"
    repair: bool = True
    platform_tag: str | None = None
    develop: bool = False  # no wheels: each project is compiled in its tree, and installed as editable
    recipes: Mapping[str, Path] = field(default_factory=dict)
    tests: tuple[PlannedTest, ...] = ()
    test_on_cpu: bool = False  # tests do not need a GPU: those that do are skipped without one

    @property
    def interpreters(self) -> tuple[Path, ...]:
        """The interpreters that wheels are built for."""
        return self.pythons or (self.sdk.python,)

    @property
    def wheels_folder(self) -> Path:
        """Where people find the wheels of a cell."""
        return self.output / self.target_set

    @cached_property
    def chosen_targets(self) -> tuple[str, ...] | None:
        """The targets of a cell, by the option, else by the variable; ``None``: those of the installed ROCm.

        Raises UsageError for a target that there is not.
        """
        if self.targets is None and not self.targets_variable:
            return None
        by_option = self.targets is not None
        text = self.targets if self.targets is not None else self.targets_variable or ""
        return gfx.parse_targets(text, input_name=gfx.TARGETS_OPTION if by_option else gfx.TARGETS_VARIABLE)


def split_request(request: WheelsRequest) -> tuple[WheelsRequest, ...]:
    """Return a request for each Python and target set, in the order in which they are built.

    A set is built for all Pythons before the next one: build trees are shared by Pythons, not by targets.
    Raises UsageError for a target that there is not, when ``per_target`` has no list to go by, and when one
    is named twice.
    """
    sets = [request]
    if request.per_target:
        if request.packaging == "multi-arch":
            raise errors.UsageError(
                "--packaging multi-arch is one set of wheels for all targets, --per-target one for each",
                tip="leave --per-target out, or build --packaging per-family",
            )
        text = request.targets if request.targets is not None else request.targets_variable or ""
        words = gfx.split_target_words(text)
        if not words:
            raise errors.UsageError(
                f"--per-target makes a set of wheels for each word of {gfx.TARGETS_OPTION}, and "
                "none is given",
                tip=f"name targets or families: {gfx.TARGETS_OPTION} gfx942,gfx110X-all",
            )
        if twice := sorted({word for word in words if words.count(word) > 1}):
            raise errors.UsageError(
                f"{gfx.TARGETS_OPTION} names {', '.join(twice)} twice", tip="name it once"
            )
        by_option = request.targets is not None
        sets = [
            replace(
                request,
                targets=word if by_option else None,
                targets_variable=request.targets_variable if by_option else word,
                target_set=_make_folder_name(word),
                per_target=False,
            )
            for word in words
        ]
    cells = tuple(
        replace(target_set, sdk=replace(request.sdk, python=python), pythons=())
        for target_set in sets
        for python in request.interpreters
    )
    for cell in cells:
        _ = cell.chosen_targets  # refuses what is no target
    return cells


def _make_folder_name(word: str) -> str:
    """Return a target or family as the name of a folder: ``gfx90a-xnack-on`` for ``gfx90a:xnack+``."""
    base, *features = word.replace(" ", "-").split(":")
    feature_words = [f"{feature[:-1]}-{'on' if feature.endswith('+') else 'off'}" for feature in features]
    return "-".join([base, *feature_words])


def select_projects(request: WheelsRequest, in_lock: Iterable[str] = ()) -> list[Project]:
    """Return the projects to build, in order.

    A project is built when asked for, or when its tree is there and nobody said no; one that is
    ``only_named`` when asked for, or when the lock has it (``in_lock``).
    Raises UsageError when it is asked for and has no tree, when the platform does not
    have it, and when nothing is left.
    """
    selected: list[Project] = []
    named = {*request.given, *in_lock}
    for name, tree in request.sources.items():
        choice = request.chosen.get(name)
        if choice is False:
            continue
        if not tree.is_dir():
            if choice or name in request.given:
                raise errors.UsageError(
                    f"{name} is to be built, and there is no source tree {tree}",
                    tip=f"check it out first (rocm-wheels checkout {project_names.get_option_name(name)}), or"
                    " give the --source-dir that has it",
                )
            continue
        project = load_project(name)
        if project.build.only_named and not (choice or name in named):
            log.log_note(f"{tree} is there: `build {name}` builds it")
            continue
        if request.platform not in project.build.platforms:
            if choice:
                raise errors.UsageError(f"{project.distribution} is not built on {request.platform}")
            continue
        selected.append(project)
    if not selected:
        searched = "\n".join(
            f"  {tree}{' (not chosen)' if request.chosen.get(name) is False else ''}"
            for name, tree in request.sources.items()
        )
        raise errors.UsageError(
            f"there is nothing to build; looked for source trees at\n{searched}",
            tip="run repos/pytorch_torch_repo.py checkout first, or give --source-dir",
        )
    return sort_projects(selected)
