"""Check whether a build fits the provided wheels that it is built against: torch above all.

Both must be of one ROCm and made for the same GPU targets. What is not known yet is not
held against anything; the step asks again when it is. Pure rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rocm_wheels.core import errors, log
from rocm_wheels.models import project_names, versions
from rocm_wheels.models.project import Project, load_project
from rocm_wheels.pipeline import provided_wheels, step
from rocm_wheels.pipeline.facts import Facts


def find_misfits(
    provided: provided_wheels.ProvidedWheel,
    *,
    rocm: str | None = None,
    targets: Sequence[str] = (),
    lock: str | None = None,
    with_asan: bool | None = None,
) -> list[str]:
    """Return every reason why nothing can be built against a wheel; what is ``None`` or empty is not known.

    ``rocm``: the version of the installed ROCm packages; ``lock``: the SHA-256 of the part of the run's lock
    that the wheel must be of; ``with_asan``: whether this run compiles with AddressSanitizer.
    """
    from rocm_wheels.audit import device_code, metadata

    reasons = list(provided.faults)
    if rocm is not None and provided.rocm is not None and not metadata.is_same_version(provided.rocm, rocm):
        reasons.append(f"it requires ROCm {provided.rocm}, and ROCm {rocm} is installed")
    for library, held in provided.libraries.items():
        served = {t for t in targets for target in held if device_code.serves_target(target, t)}
        if missing := [target for target in targets if target not in served]:
            reasons.append(
                f"{library} lacks {' '.join(missing)}: it holds {' '.join(held) or 'no device code'}"
            )
    if with_asan not in (None, versions.is_asan_version(provided.version)):
        reasons.append(f"it is compiled with{'out' if with_asan else ''} AddressSanitizer, unlike this run")
    if lock is not None and provided.lock != lock:
        how = "under another lock" if provided.lock else "without a lock"
        reasons.append(f"it does not hold the lock of this run: it was built from other sources, or {how}")
    return reasons


def find_project_misfits(
    project: Project, provided: provided_wheels.ProvidedWheel, facts: Facts, targets: Sequence[str]
) -> list[str]:
    """Return why one project cannot be built against a wheel in the build environment.

    A wheel for every family is built against the torch of one, which has not the code of the others. The lock
    is in a wheel, or a step of ours built, or packaged, that content by it.
    """
    ready, locked, lock = facts.python.ready, facts.locked, None
    if locked is not None and provided.project in locked.lock.projects:
        from rocm_wheels.package import sbom

        lock = sbom.digest_lock_part(locked.lock, provided.project)
        stamped = [done.stamp.facts for done in facts.done.values()]
        if (provided.content, lock) in [(each.get("content"), each.get("lock")) for each in stamped]:
            lock = None
    return find_misfits(
        provided,
        rocm=None if ready is None else ready.sdk.version,
        targets=() if project.serves_every_family(facts.request.platform) else targets,
        lock=lock,
        with_asan=facts.request.packaging == "asan",
    )


def refuse_misfits(facts: Facts, builds: Iterable[tuple[Project, Sequence[str]]]) -> None:
    """Raise UsageError that names all wheels which ``builds`` (project, targets) do not fit.

    A project that they need and that neither they nor anybody else provides is named first.
    """
    refused: list[str] = []
    wrong: dict[str, dict[str, None]] = {}
    missing: dict[str, dict[str, None]] = {}
    python, provided = facts.python, facts.python.provided
    # of somebody's environment that ROCm goes to it is yet to be known what is installed there
    unknown = facts.request.sdk.current_env and python.ready is None
    tag = f"{python.tag} (its environment will be created: {python.why_install})"
    tag = tag if python.why_install else python.tag
    for project, targets in builds:
        refused += _find_refused_versions(project, facts)
        for name in project.build.after:
            if facts.builds_project(name):
                continue
            if name not in provided:
                if name in project.build.needs and not unknown:
                    missing.setdefault(name, {})[f"{project.distribution} for {tag}"] = None
            elif name in project.build.needs or provided[name].wheel is not None:
                for fault in find_project_misfits(project, provided[name], facts, targets):
                    wrong.setdefault(provided[name].describe(), {})[fault] = None
    if missing:
        raise _report_missing(missing, develop=facts.request.develop)
    if refused:
        raise errors.UsageError(
            "\n".join(refused), tip="take another version of it, or change that file in the source tree"
        )
    if wrong:
        lines = [f"{wheel} cannot be built against:\n  " + "\n  ".join(wrong[wheel]) for wheel in wrong]
        tip = "give a wheel of the same ROCm, targets and Python, or build it in this run (name it, too)"
        raise errors.UsageError("\n".join(lines), tip=tip)


def _find_refused_versions(project: Project, facts: Facts) -> list[str]:
    """Return why, by its recipe, a project cannot be built against what this run builds or has."""
    found = []
    for rule in project.build.refuses:
        tree, held = facts.trees.get(rule.project), facts.python.provided.get(rule.project)
        if tree is not None:
            version, name = tree.version, f"{load_project(rule.project).distribution} of {tree.source}"
        elif held is not None:
            version, name = held.version, held.describe()
        else:
            continue
        source = facts.trees[project.name].source
        if version is not None and rule.apply_to(source, version):
            found.append(
                f"{project.distribution} cannot be built against {name}: {rule.reason} ({source / rule.file})"
            )
    return found


def _report_missing(missing: dict[str, dict[str, None]], *, develop: bool) -> errors.UsageError:
    lines, ways = [], []
    for name, needed_by in missing.items():
        option, distribution = project_names.get_option_name(name), load_project(name).distribution
        lines.append(
            f"{', '.join(needed_by)}: built against {distribution}, which this run does not build, and which"
            " is neither given nor installed in the build environment"
        )
        ways.append(
            f"`rocm-wheels build {name}`, with the same ROCm and the same --work-dir, builds"
            f" {distribution} and installs it there"
            if develop
            else f"`build {name} …` builds it, --{option}-wheel FILE takes a wheel, and --current-env (or"
            f" the work directory of a run that built it) has the {distribution} that is installed there"
        )
    return errors.UsageError("\n".join(lines), tip="; ".join(ways))


def warn_of_unread_code(facts: Facts, projects: Iterable[Project]) -> None:
    """Say of which wheels that ``projects`` are built against nobody could read the device code."""
    needed = {name for project in projects for name in project.build.needs}
    for name, provided in facts.python.provided.items():
        if name in needed and provided.outside and not facts.builds_project(name):
            log.log_warning(
                f"{provided.describe()}: its device code is in {', '.join(provided.outside)}, which is not"
                " here: its targets are not compared (device wheels of the same version are read where they"
                " lie beside it, or are installed)"
            )


def list_built_against(facts: Facts) -> tuple[step.BuiltAgainst, ...]:
    """Return the wheels that projects of a run are built against and that it does not build."""
    wheels = []
    for name, provided in facts.python.provided.items():
        if name != "triton" or find_usable_triton(facts)[0] is not None:
            targets = " ".join(dict.fromkeys(t for held in provided.libraries.values() for t in held))
            place = str(provided.wheel or provided.place)
            wheels.append(
                step.BuiltAgainst(
                    name,
                    facts.python.tag,
                    provided.version,
                    provided.source,
                    place,
                    provided.content,
                    targets,
                )
            )
    return tuple(wheels)


def find_usable_triton(facts: Facts) -> tuple[provided_wheels.ProvidedWheel | None, str]:
    """Return the triton that torch can require and this run does not build; else ``None``, and why not.

    One that was given counts. An installed one must be of this build by its version: another may be there for
    whatever reason, and torch would require it of everybody.
    """
    python = facts.python
    triton = python.provided.get("triton")
    if triton is None or triton.wheel is not None:
        return triton, "triton is not built"
    if triton.faults:
        return None, f"triton is not built, and the installed one is faulty: {triton.faults[0]}"
    assert python.ready is not None, "what is installed is known of environments that are ready"
    suffix = facts.wheel_suffix(python.ready.sdk.version, "triton")
    is_alike = versions.is_asan_version(triton.version) == versions.is_asan_version(f"1{suffix}")
    suffix = versions.strip_version_marks(versions.get_local_part(suffix))
    # a developer's is of this build, too
    local = versions.strip_version_marks(f".{triton.version.partition('+')[2]}")
    if is_alike and suffix and local.endswith(f".{suffix}"):
        return triton, ""
    return None, f"triton is not built, and the installed {triton.version} is none of this build (+{suffix})"
