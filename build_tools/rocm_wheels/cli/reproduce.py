"""``set reproduce``: build the wheels of a set again from what the set says, and compare the bytes."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocm_wheels.cli import boundary, catalogue, checkout_options, evidence
from rocm_wheels.cli.command import command, option
from rocm_wheels.core import errors, log, tables

if TYPE_CHECKING:
    from rocm_wheels.models import test_results
    from rocm_wheels.pipeline import request as request_module
    from rocm_wheels.release import rebuild, wheel_set
    from rocm_wheels.stores.store import Store
    from rocm_wheels.wheels import statement

RESULTS_FILE = "reproduced.json"
_MOST_LINES = 10  # of reasons why a wheel differs,
_MOST_BUILD_LINES = 4  # of these about how it was built


@command("set reproduce")
@evidence.set_options
@catalogue.PROJECT.but(
    name="projects",
    multiple=True,
    help="Only the wheels of this project; may be repeated [default: every wheel of the set].",
)
@catalogue.OUTPUT_DIR.but(
    help="Sources, builds, wheels and reproduced.json [default: reproduced-ID, here]; the same again goes on."
)
@catalogue.ROCM_INDEX.but(help="Where ROCm's packages are [default: where the store says, or your index].")
@catalogue.FIND_LINKS
@catalogue.ROCM_PATH.but(help="The installed ROCm, for a set that was built on one.")
@option("--any-image", is_flag=True, help="Build outside of the image that the set was built in.")
@catalogue.SIGN_WITH
@catalogue.JSON
def reproduce_command(  # noqa: PLR0917 - click passes them by name
    store: str,
    set_id: str,
    projects: tuple[str, ...],
    output_dir: Path | None,
    index_url: str | None,
    find_links: str | None,
    rocm_path: Path | None,
    any_image: bool,
    sign_with: Path | None,
    as_json: bool,
) -> None:
    """Build the wheels of a set again, and write down whether they have the same bytes.

    Sources, tools and ROCm's packages are those that its lock and the statements of its wheels name, by
    commit and SHA-256; options and variables are those that its builds were given, and none of yours. A wheel
    that came out otherwise is compared member by member: what differs, and why. What was found is evidence
    of the kind `reproduced`, which a policy can ask for. Exit code 14 when a wheel differs.

    \b
    Examples:
      rocm-wheels set reproduce s3://wheels --set 2.9.1-93bf --sign-with second-builder
      rocm-wheels set reproduce s3://wheels --set 2.9.1-93bf --project torchvision
    """
    from rocm_wheels.core import files, installation
    from rocm_wheels.release import policy, rebuild, support
    from rocm_wheels.release.evidence import results

    installation.require_extras("a build", "build")
    evidence.try_key(sign_with)
    begun = evidence.describe_origin("set reproduce")
    opened, document = evidence.open_set(store, set_id)
    rebuilds = rebuild.plan_rebuilds(opened, document, projects)
    remarks = [
        remark for planned in rebuilds for remark in _compare_ground(planned, rocm_path, any_image=any_image)
    ]
    for remark in remarks:
        log.log_warning(remark)
    if not (index_url or find_links):
        for address in support.read_public(opened).other_indexes[:1]:
            index_url = policy.check_public_url(address)
    if find_links and "://" not in find_links:
        find_links = str(Path(find_links).absolute())
    folder = (output_dir or Path(f"reproduced-{document.id}")).absolute()
    tests: list[test_results.TestResult] = []
    moments: list[datetime] = []
    with files.lock_folder(folder, purpose="set reproduce", tip=f"{files.WAIT_TIP}, or give it another -o"):
        for number, planned in enumerate(rebuilds, 1):
            place = folder / f"build-{number}"
            needed = (*planned.given.values(), *(wheel.file for wheel in planned.compared))
            published = _fetch_wheels(opened, document, needed, place / "published")
            request = _make_request(planned, place, published)
            sdk = replace(request.sdk, index_url=index_url, find_links=find_links, rocm_path=rocm_path)
            _check_out(planned, place)
            _build(replace(request, sdk=sdk), _clear_environment(planned))
            for wheel in planned.compared:
                tests += _compare(wheel, published[wheel.file.sha256], place / "wheels")
                moments += _list_build_times(place / "wheels", wheel.file.name)
        when = min(moments, default=datetime.fromisoformat(begun["when"]))
        found = _make_results(begun["tool"], when, rebuilds, tests, remarks)
        files.write_atomically(folder / RESULTS_FILE, found.to_json())
        entries = results.read_results([folder / RESULTS_FILE], evidence.make_submission(document))
    if not as_json:
        for line in _format_tests(found):
            click.echo(line)
    evidence.submit(opened, document, entries, sign_with, as_json=as_json, faults=False)
    if failed := sorted({name for test in tests if test.is_bad for name in test.wheels}):
        raise errors.AuditError(
            f"{tables.count_part(len(failed), len(found.wheels), 'wheel')} came out otherwise: {failed[0]}",
            tip=f"both are in {folder}; {RESULTS_FILE} there has the reasons",
        )


def _compare_ground(planned: rebuild.Rebuild, rocm_path: Path | None, *, any_image: bool) -> Iterator[str]:
    """Yield what is known to be otherwise here than at the first build, and may be.

    Raises UsageError where other compilers would be, another system, or another kind of ROCm.
    """
    from rocm_wheels.core import files, installation
    from rocm_wheels.models import project_names

    asked = planned.parameters
    if asked.platform != (system := checkout_options.detect_platform()):
        raise errors.UsageError(
            f"the set is for {asked.platform}, and this is {system}", tip=f"run it on {asked.platform}"
        )
    here = boundary.read_environment().get(installation.IMAGE_VARIABLE, "").rpartition("/")[2]
    for image in sorted(planned.images - {here}):
        if not any_image:
            raise errors.UsageError(
                f"the set was built in the image {image}, and this is in {here or 'none'}",
                tip=f"run it in that: rocm-wheels container run --image REGISTRY/{image} -- …; or outside of"
                " it: --any-image",
            )
        yield f"built outside of the image {image}"
    recipes = {wheel.parameters.project: wheel.parameters.recipe.sha256 for wheel in planned.wheels}
    for name, sha256 in recipes.items():
        if (digest := files.hash_file(project_names.find_recipes()[name].path)) != sha256:
            yield f"built by another recipe of {name}: sha256 {digest[:12]}…, not {sha256[:12]}…"
    if bool(asked.installed_rocm) != (rocm_path is not None):
        built_on = "an installed ROCm" if asked.installed_rocm else "packages of ROCm"
        raise errors.UsageError(
            f"the set was built on {built_on} ({asked.rocm or planned.lock.rocm})",
            tip="name it: --rocm-path DIR" if asked.installed_rocm else "leave --rocm-path out",
        )


def _fetch_wheels(
    store: Store, document: wheel_set.SetDocument, files: Iterable[wheel_set.SetFile], folder: Path
) -> dict[str, Path]:
    """Have wheels of the set in a folder, whole, and return them by their sha256.

    Raises ReleaseError for one whose bytes in the store are not those of the set.
    """
    from rocm_wheels.core.files import hash_file
    from rocm_wheels.release.store_paths import FamilyPaths

    paths = FamilyPaths(document.family)
    fetched = {}
    for file in files:
        place = fetched[file.sha256] = folder / file.sha256[:12] / file.name
        if place.is_file() and hash_file(place) == file.sha256:
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        store.fetch(paths.pool_file(file.sha256, file.name), place)
        if (digest := hash_file(place)) != file.sha256:
            raise errors.ReleaseError(
                f"{store.url}: {file.name} has the sha256 {digest[:12]}…, its set says {file.sha256[:12]}…",
                tip="`rocm-wheels store fsck --hash` names what is damaged",
            )
    return fetched


def _check_out(planned: rebuild.Rebuild, place: Path) -> None:
    """Write the lock with its tools, and check out what is built. Raises SourceError."""
    from functools import partial

    from rocm_wheels.core.files import write_atomically
    from rocm_wheels.models.project import load_project
    from rocm_wheels.sources import checkout, lock

    place.mkdir(parents=True, exist_ok=True)
    write_atomically(place / "sources.lock.json", lock.format_lock(planned.lock))
    file = lock.open_lock(place / "sources.lock.json", checkout_options.detect_platform())
    options = {
        "depth": None,
        "submodules": True,
        "hipify": None,
        "commit_hipify": True,
        "projects": (),
        "lock": file,
    }
    env, folder = boundary.read_environment(), place / "sources"
    tasks = [
        checkout.CheckoutTask(
            name,
            partial(checkout_options.make_locked_request, load_project(name), file, folder / name, options),
            check=partial(lock.check_checkout, file, env=env),
        )
        for name in planned.projects
    ]
    for outcome in checkout.checkout_projects(tasks, folder, env=env, python=Path(sys.executable)):
        if outcome.failure is not None:
            raise outcome.failure


def _build(request: request_module.WheelsRequest, env: Mapping[str, str]) -> None:
    """Build what is asked for. Raises as a build does."""
    from rocm_wheels.pipeline import local_executor, run

    with boundary.serve_forks() as server:
        how = local_executor.ExecutionOptions(server=server)
        summary = run.build_wheels(request, env, how, boundary.format_command_line())
    if summary.failure is not None:
        raise summary.failure


def _clear_environment(planned: rebuild.Rebuild) -> dict[str, str]:
    """Return the environment without what the user has set for builds, and with what was set then."""
    from rocm_wheels.compile import variables

    mine = boundary.read_build_environment()
    boundary.pop_starting_python(mine)
    env = {
        name: value
        for name, value in mine.items()
        if not variables.is_configuration_variable(name, value) and name not in variables.USER_VARIABLES
    }
    if names := sorted(mine.keys() - env.keys() - planned.shell.keys()):
        log.log_note(f"left out, as they were not set then: {', '.join(names)}")
    if planned.withheld:
        log.log_warning(f"set by the builder to values that no statement has: {', '.join(planned.withheld)}")
    return {**env, **planned.shell}


def _make_request(
    planned: rebuild.Rebuild, place: Path, published: Mapping[str, Path]
) -> request_module.WheelsRequest:
    """Return what the first build was asked for; where ROCm comes from is not said yet."""
    from rocm_wheels.models import project_names
    from rocm_wheels.pipeline import request
    from rocm_wheels.sdk import interpreters

    asked, env = planned.parameters, boundary.read_environment()
    try:  # the very one: its headers come into wheels
        (python,) = interpreters.find_interpreters([planned.python_release], env)
    except errors.UsageError:
        (python,) = interpreters.find_interpreters([planned.python], env)
        log.log_warning(f"built with Python {planned.python_release}; here it is {python.full_version}")
    names = project_names.list_project_names()
    return request.WheelsRequest(
        sdk=request.SdkRequest(python.path),
        install_rocm=True,
        output=place / "wheels",
        work=place / "work",
        sources={name: place / "sources" / name for name in names},
        given=frozenset(),
        chosen={name: name in planned.projects for name in names},
        platform=asked.platform,
        targets=",".join(planned.targets) or None,
        build_number=asked.build_number,
        version_suffix=asked.asked_suffix,
        release_type=asked.release_type,
        flash_attention=asked.flash_attention,
        unlisted_targets=asked.unlisted_targets,
        given_wheels={name: (published[file.sha256],) for name, file in planned.given.items()},
        set_env=planned.set_env,
        offline=interpreters.is_offline(env),
        lock=place / "sources.lock.json",
        packaging=planned.packaging,
        repair=asked.repair,
        platform_tag=asked.platform_tag,
        recipes=project_names.list_foreign_recipes(),
    )


def _compare(wheel: rebuild.BuiltWheel, published: Path, folder: Path) -> list[test_results.TestResult]:
    """Return that a wheel came out with the same bytes, or a failure for each reason why it did not."""
    from rocm_wheels.core.files import hash_file
    from rocm_wheels.models import test_results
    from rocm_wheels.release.evidence.evidence import make_printable_line

    name, project = wheel.file.name, wheel.file.project
    rebuilt = next(iter(sorted(folder.rglob(name))), None)
    if rebuilt is not None and hash_file(rebuilt) == wheel.file.sha256:
        return [test_results.TestResult(name=name, outcome="passed", wheels=(name,))]
    if rebuilt is None:
        others = sorted(path.name for path in folder.rglob(f"{name.partition('-')[0]}-*.whl"))
        reasons = [f"its build has another name: {', '.join(others) or 'it made none'}"]
    else:
        try:
            reasons = _list_reasons(wheel, published, rebuilt) or ["the archive: compression"]
        except errors.RocmWheelsError as fault:  # of one that cannot be read it is to be said, too
            reasons = [f"they cannot be compared: {fault.message}"]
    return [
        test_results.TestResult(
            name=project,
            outcome="failed",
            detail=make_printable_line(log.make_printable(reason)),
            wheels=(name,),
        )
        for reason in reasons
    ]


def _format_tests(found: test_results.Results) -> Iterator[str]:
    """Yield a line for each wheel, and below it why it differs."""
    for name, sha256 in found.wheels.items():
        reasons = [test.detail for test in found.tests if test.is_bad and name in test.wheels]
        yield f"{'differs' if reasons else 'equal'}  {name}  sha256 {sha256[:12]}…"
        yield from (f"  {reason}" for reason in reasons)


def _list_reasons(wheel: rebuild.BuiltWheel, published: Path, rebuilt: Path) -> list[str]:
    """Return what is known of a difference: members with causes, then in what the two builds differed."""
    from rocm_wheels.release.rebuild import list_differences
    from rocm_wheels.wheels import byte_difference

    now = _read_build(rebuilt)
    different = [] if now is None else list_differences(wheel.build, now)[:_MOST_BUILD_LINES]
    found = byte_difference.explain_differences(published, rebuilt)
    lines = byte_difference.format_differences(found, _MOST_LINES - len(different))
    return [*lines, *(f"built otherwise: {line}" for line in different)]


def _read_build(wheel: Path) -> statement.ProvenanceStatement | None:
    """Return the statement of the build that a wheel came of; None where it has none."""
    from rocm_wheels.wheels import statement

    newest = statement.read_statement(wheel)
    return None if newest is None else [newest, *(each for each, _ in statement.walk_statements(newest))][-1]


def _list_build_times(folder: Path, name: str) -> Iterator[datetime]:
    """Yield when a wheel was built: in a folder where it was built before, nothing is built anew."""
    for wheel in folder.rglob(name):
        build = _read_build(wheel)
        if build is not None and (
            text := build.predicate["runDetails"].get("metadata", {}).get("finishedOn")
        ):
            yield datetime.strptime(text, "%Y-%m-%dT%H:%M:%S%z")


def _make_results(
    tool: str,
    when: datetime,
    rebuilds: Iterable[rebuild.Rebuild],
    tests: Iterable[test_results.TestResult],
    remarks: Iterable[str],
) -> test_results.Results:
    from rocm_wheels.models import test_results
    from rocm_wheels.release.evidence.evidence import make_printable_line

    wheels = {wheel.file.name: wheel.file.sha256 for planned in rebuilds for wheel in planned.compared}
    return test_results.Results(
        kind="reproduced",
        tool=tool,
        when=when,
        host=platform.node() or "unknown",
        wheels=wheels,
        tests=tuple(tests),
        remarks=tuple(map(make_printable_line, dict.fromkeys(remarks))),
    )
