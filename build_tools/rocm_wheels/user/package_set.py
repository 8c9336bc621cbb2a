"""From a request to the files of a set: torch is chosen, uv resolves the rest around it, the rules are held.

The pages of projects with code for GPUs are read here, and given to uv as they may be taken (``resolve``):
with the builds for the torch that was chosen, and variants as ``choose`` ranks them. What uv reads by itself
is judged by the index that it names (``requested`` has the rules).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels.core import errors, log, parallel
from rocm_wheels.index import reader
from rocm_wheels.models import project_names
from rocm_wheels.models.closed_projects import is_closed_project
from rocm_wheels.models.versions import is_asan_version
from rocm_wheels.user import candidates, choose, index_pages, offers, requested, resolve
from rocm_wheels.user.environment import InstallTarget
from rocm_wheels.user.host import TargetHost
from rocm_wheels.user.install_options import UnservedGpuError
from rocm_wheels.user.installed_packages import InstalledDistribution
from rocm_wheels.user.lock import LockedPackage, strip_credentials
from rocm_wheels.user.plan_reader import PlanReader
from rocm_wheels.wheels import dist_info

if TYPE_CHECKING:
    from rocm_wheels.index.signed_index import SignedIndexes

_JOBS = 8
_DEVICE_EXTRA = "device-"


@dataclass(frozen=True)
class InstallRequest:
    """What a user wants. ``gfx`` states another machine.

    ``venv`` is the folder of an environment that is made of ``python`` where it is not there. ``find_links``
    are folders and pages whose wheels count as those of the chosen index, but for torch's. ``signed`` says
    which pages of the index are taken; None: all. ``allow_cpu``: a torch that serves no GPU of this machine
    is taken, too. ``lock`` has everything: nothing is chosen. ``whole``: also what is installed and stays is
    to have a file, as a lock or a folder for other machines does. ``dry_run``: no wheel is fetched to see
    what is in it.
    """

    packages: tuple[str, ...] = ()
    index: str | None = None
    rocm_index: str | None = None
    find_links: tuple[str, ...] = ()
    python: Path | None = None
    venv: Path | None = None
    channel: str = "stable"
    pre: bool = False
    gfx: tuple[str, ...] = ()
    signed: SignedIndexes | None = None
    allow_cpu: bool = False
    lock: Path | None = None
    whole: bool = False
    dry_run: bool = False


@dataclass(frozen=True)
class InstallSite:
    """Where it is installed, and the ways out: an environment on a machine, and what is in it.

    ``dependencies`` is the index of what the chosen one lacks, "" where pip is to ask none; ``env`` has the
    variables of the user and of pip's settings, ``connection`` those of pip's alone.
    """

    target: InstallTarget
    host: TargetHost
    present: Mapping[str, InstalledDistribution]
    dependencies: str
    reach: PlanReader
    cache: Path
    env: Mapping[str, str] = field(repr=False)
    connection: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class PackageSet:
    """The files; ``requirements`` is what uv was asked for, ``choice`` that of torch.

    ``indexes`` are those that uv asks, the last for what the others lack.
    """

    packages: tuple[LockedPackage, ...]
    index: str
    indexes: tuple[str, ...]
    requirements: tuple[str, ...]
    choice: candidates.WheelChoice | None


class SetPlanner:
    """Plans one set for a site. ``refused`` are known indexes that are passed over, as their torch was.

    UsageError for requirements and addresses that are none.
    """

    def __init__(
        self,
        request: InstallRequest,
        site: InstallSite,
        refused: Mapping[str, UnservedGpuError] | None = None,
    ) -> None:
        self._request, self._site, self._refused = request, site, refused
        self._packages = requested.parse_packages(request.packages, site.target.environment.markers)
        ours = project_names.find_wheel_projects()
        self._companions = [
            name for name in self._packages if name != "torch" and (is_closed_project(name) or name in ours)
        ]
        self._versions = {name: installed.version for name, installed in site.present.items()}
        self._rocm_url = request.rocm_index and reader.resolve_index_url(request.rocm_index)
        self._link_urls = [
            text if index_pages.is_page_url(text) else reader.resolve_index_url(text)
            for text in request.find_links
        ]
        self._lines: Sequence[str] = ()  # what uv was asked for at last
        self._left_out: list[str] = []  # projects of which compiled wheels are not offered

    def plan(self) -> PackageSet:
        """Choose and resolve. HostError when nothing fits or nothing may."""
        request, reach = self._request, self._site.reach
        torch = requested.find_torch_requirement(self._packages)
        if torch is None and request.index is None:
            raise errors.UsageError(
                "nothing of this belongs to torch, which says from which index things come",
                tip="name torch as well, or the index with --index",
            )
        if request.signed is not None:  # the pages of other indexes that were named need not be
            named = reader.resolve_index_url(request.index) if request.index else None
            exempt = {self._site.dependencies, self._rocm_url or "", *self._link_urls} - {named}
            reach.page_check = replace(request.signed, exempt=frozenset(exempt)).check_page
        choice = self._choose(torch, request.index) if torch is not None else None
        index = choice.index if choice else reader.resolve_index_url(request.index or "")
        self.read_places(index, "torch" if choice else next(iter(self._packages)))
        if choice is None:
            packages = self._resolve([str(requirement) for requirement in self._packages.values()], {})
        else:
            choice, packages = self._resolve_around(choice)
        if request.signed is not None:
            self._require_signed_files(packages)
        for number, package in enumerate(packages):
            fetched = reach.fetched.get(package.url)  # to see what it requires
            if fetched is not None and package.sha256 is None:
                log.log_warning(f"{requested.NO_DIGEST} {package.file}: {requested.ONLY_CONNECTION}")
                packages[number] = replace(package, sha256=fetched.sha256, size=fetched.size)
        return PackageSet(tuple(packages), index, tuple(self._list_indexes()), tuple(self._lines), choice)

    def read_places(self, index: str, project: str) -> None:
        """Read where wheels are: the chosen index, which has a page of ``project``, and those beside it."""
        reach = self._site.reach
        self._index, self._dependencies = index, self._site.dependencies or index
        self._places = [offers.WheelPlace(index, project, reach)]
        self._places += [offers.WheelPlace(link, None, reach) for link in self._link_urls]
        self._rocm = offers.WheelPlace(self._rocm_url, "rocm", reach) if self._rocm_url else None

    # --- torch ---

    def _choose(self, requirement: str, index: str | None) -> candidates.WheelChoice:
        """Choose a project's wheel; of the known indexes one that has all the companions, too."""
        request, host = self._request, replace(self._site.host, versions=self._versions)
        return choose.choose_wheels(
            [requirement, *(self._companions if index is None else ())], index, host, self._site.reach,
            channel=request.channel, pre=request.pre, allow_cpu=request.allow_cpu, refused=self._refused,
        )[0]  # fmt: skip

    def _resolve_around(
        self, choice: candidates.WheelChoice
    ) -> tuple[candidates.WheelChoice, list[LockedPackage]]:
        """Resolve with exactly the torch that was chosen.

        Where that fails, another may do: it is taken where only a companion was asked for, else named.
        """
        try:
            return choice, self._resolve_with(choice)
        except errors.HostError as failure:
            asked = dict(self._packages)
            torch = Requirement(choice.requires[0])
            torch.specifier = asked.pop("torch").specifier if "torch" in asked else SpecifierSet()
            pages = {"torch": self._list_builds("torch", choice)}
            try:
                packages = self._resolve([str(torch), *map(str, asked.values())], pages)
            except errors.HostError:
                raise failure from None
            version = str(next(package.version for package in packages if package.project == "torch"))
            if "torch" in self._packages or version == choice.picked.version:
                together = [f"'{p.project}=={p.version}'" for p in packages if p.project in self._packages]
                failure.tip = f"these go together: rocm-wheels install {' '.join(together)}"
                raise failure from None
        choice = self._choose(f"torch=={version}", self._index)
        return choice, self._resolve_with(choice)

    def _resolve_with(self, choice: candidates.WheelChoice) -> list[LockedPackage]:
        self._versions["torch"] = choice.picked.version
        torch, stub = Requirement(choice.requires[0]), self._make_stub("torch", choice.picked)
        lines = [str(torch), *(str(line) for name, line in self._packages.items() if name != "torch")]
        names, constraints = dict.fromkeys(self._companions), []
        metadata = dist_info.parse_metadata(stub.content or b"", name=f"METADATA of {choice.picked.name}")
        markers = self._site.target.environment.markers
        for requirement in map(Requirement, metadata.requires_dist):
            name, marker = canonicalize_name(requirement.name), requirement.marker
            applies = marker is None or any(
                marker.evaluate({**markers, "extra": extra}) for extra in torch.extras or {""}
            )
            if applies and is_closed_project(name):
                names[name] = None
                # uv takes a pre-release that somebody requires only where it is asked for
                constraints += [f"{name}>=0.dev0"] if requirement.specifier.prereleases else []
        builds = parallel.run_in_parallel(lambda name: self._list_builds(name, choice), names, jobs=_JOBS)
        pages = dict(zip(names, builds, strict=True))
        if absent := [name for name, page in pages.items() if not page]:
            raise self._make_absent_error(absent[0])
        pages["torch"] = [stub]
        packages = self._resolve(lines, pages, constraints)
        # torch's companions may have kernels of their own in other wheels, by the same extras
        more = []
        device_extras = {extra for extra in torch.extras if extra.startswith(_DEVICE_EXTRA)}
        for package in packages if device_extras else ():
            if package.index == offers.CHOSEN and package.project != "torch" and not package.is_sdist:
                shared = device_extras & self._read_extras(package)
                more += (
                    [f"{package.project}[{','.join(sorted(shared))}]=={package.version}"] if shared else []
                )
        return self._resolve(lines + more, pages, constraints) if more else packages

    def _read_extras(self, package: LockedPackage) -> set[str]:
        files = self._list_offers(package.project)
        beside = next((offer.metadata for offer in files if offer.package.url == package.url), None)
        link = reader.IndexLink(package.file, package.file, package.url, metadata=beside, size=package.size)
        metadata = index_pages.read_wheel_metadata(link, self._site.reach)
        extras = dist_info.parse_metadata(metadata, name=package.name).provides_extra
        return set(map(canonicalize_name, extras))

    # --- what is offered ---

    def _list_indexes(self) -> list[str]:
        own = [self._places[0], *([self._rocm] if self._rocm else [])]
        urls = [place.url for place in own if place.is_index and not is_index(place.url, self._dependencies)]
        return [*urls, self._dependencies]

    def _list_offers(self, project: str) -> list[offers.Offer]:
        """Return the files that the chosen index and --find-links have of a project, else those of ROCm's."""
        files = [offer for place in self._places for offer in place.list_offers(project)]
        is_of_rocm = requested.is_rocm_project(project)
        return self._rocm.list_offers(project) if self._rocm and is_of_rocm and not files else files

    def _list_builds(self, project: str, choice: candidates.WheelChoice) -> list[offers.Offer]:
        """Return what uv is offered of a project: the builds for torch, of variants the best of a version."""
        files, torch = self._list_offers(project), Version(choice.picked.version)
        versions = {offer.package.version for offer in files}
        allowed = offers.select_same_build(versions, torch, is_torch=project == "torch")
        varied = {offer.package.version for offer in files if offers.is_variant(offer)} & allowed

        def choose_variant(version: Version) -> offers.Offer | None:
            try:
                picked = self._choose(f"{project}=={version}", self._index).picked
            except reader.UnreachableError:
                raise
            except errors.HostError:
                return None  # a version that this machine can use no variant of is not offered
            return self._make_stub(project, picked)

        variants = parallel.run_in_parallel(choose_variant, sorted(varied), jobs=_JOBS)
        plain = [offer for offer in files if offer.package.version in allowed - varied]
        return [*plain, *filter(None, variants)]

    def _make_stub(self, project: str, picked: candidates.ChoiceCandidate) -> offers.Offer:
        content = index_pages.read_wheel_metadata(picked.link, self._site.reach)
        plain = replace(dist_info.split_wheel_name(picked.name), label="").file_name
        package = LockedPackage(
            project, picked.wheel.version, plain, picked.url, picked.sha256, picked.size, offers.CHOSEN,
            properties=picked.properties if picked.label else None,
        )  # fmt: skip
        return offers.Offer(package, content, picked.requires_python)

    @cached_property
    def _kept(self) -> list[offers.Offer]:
        """Return what is installed of projects that may come from the index of dependencies, to stay."""
        kept = []
        for name, installed in self._site.present.items():
            is_ours = is_closed_project(name) or name in self._companions
            if is_ours or requested.requires_pure_wheel(name) or installed.editable:
                continue
            try:
                version, content = Version(installed.version), (installed.info / "METADATA").read_bytes()
            except (InvalidVersion, OSError):
                continue
            wheel, place = f"{name.replace('-', '_')}-{version}-py3-none-any.whl", installed.info.as_uri()
            package = LockedPackage(name, version, wheel, place, index=offers.INSTALLED)
            kept.append(offers.Offer(package, content))
        return kept

    def _list_pure_wheels(self, project: str) -> list[offers.Offer]:
        """Return the wheels without compiled code that the index of dependencies has, where ours has none."""
        if self._places[0].list_offers(project):
            return []
        links = index_pages.read_project_links(self._dependencies, project, self._site.reach) or ()
        pure = [link for link in links if offers.is_pure_wheel(reader.file_name_of_link(link))]
        self._left_out += [project] if len(pure) < len(links) else []
        return list(filter(None, (offers.make_offer(link, self._dependencies) for link in pure)))

    # --- uv, and the rules ---

    def _resolve(
        self,
        lines: Sequence[str],
        pages: Mapping[str, Sequence[offers.Offer]],
        constraints: Sequence[str] = (),
    ) -> list[LockedPackage]:
        """Ask uv, with what is offered of projects that it may not look for; each must be of its place."""
        site, request = self._site, self._request
        names = {name for place in self._places for name in place.listed}
        names |= set(filter(requested.is_rocm_project, self._rocm.listed if self._rocm else ()))
        offered = {name: self._list_offers(name) for name in sorted(names - {*pages})}
        for name in self._packages:
            is_open = requested.requires_pure_wheel(name) and not is_closed_project(name)
            if is_open and name not in offered and (page := self._list_pure_wheels(name)):
                offered[name] = page
        constraints = [*constraints, *(f"{name}>=0.dev0" for name in pages if request.pre)]
        kept = [] if request.whole else self._kept
        asked = resolve.ResolveRequest(lines, self._list_indexes(), {**offered, **pages}, kept, constraints)
        python, markers = site.target.runnable_python, site.target.environment.markers
        try:
            packages = resolve.resolve_packages(asked, python, markers, site.host.tags, site.cache, site.env)
        except errors.HostError as cause:
            raise self._explain_failure(str(cause)) from None
        for package in packages:
            self._require_origin(package, packages)
        self._lines = lines
        return packages

    def _make_absent_error(self, project: str, message: str = "") -> errors.HostError:
        option = "--rocm-index" if requested.is_rocm_project(project) else "--index"
        return errors.HostError(
            f"{message}{project} is for one build of torch or ROCm and only taken from the index that was "
            f"chosen, which has none for this Python and platform: {strip_credentials(self._index)}",
            tip=f"name an index that has it with {option}",
        )

    def _explain_failure(self, message: str) -> errors.HostError:
        """Say what lies behind a failure of uv's, where the rules do."""
        unknown = re.findall(r"(?<![\w.-])([A-Za-z0-9][\w.-]*?)(?:\[[\w,-]+\])? was not found", message)
        names = unknown + re.findall(r"no versions? of ([A-Za-z0-9][\w.-]*)", message)
        where = strip_credentials(self._dependencies)
        pages = re.findall(rf"{re.escape(where)}([\w.-]+)/", message)
        for name in dict.fromkeys(map(canonicalize_name, [*names, *pages])):
            # uv takes a page to log in for one without files; ours says what is wrong with it
            index_pages.read_project_links(self._dependencies, name, self._site.reach)
        closed = [name for name in map(canonicalize_name, names) if is_closed_project(name)]
        if left_out := [name for name in self._left_out if re.search(rf"\b{re.escape(name)}\b", message)]:
            return errors.HostError(
                f"{message}\nof {left_out[0]} the chosen index has nothing, and only wheels without compiled "
                "code are taken from the index of dependencies: those with are built for another torch",
                tip="name another version of it, or an index that has it with --index",
            )
        if closed:
            return self._make_absent_error(closed[0], f"{message}\n")
        tip = "name versions that go together, such as 'torch==2.9.*'; or another --index"
        if unknown:
            tip = f"is the name {unknown[0]} right? What the index lacks is looked for in {where}"
        elif "initialize cache" in message:
            tip = "XDG_CACHE_HOME or UV_CACHE_DIR names another folder"
        return errors.HostError(message, tip=tip)

    def _require_origin(self, package: LockedPackage, packages: Iterable[LockedPackage]) -> None:
        """Raise HostError for a package that may not come from where it is, or that nobody asked for."""
        name, asked = package.project, self._packages.values()
        is_named = any(is_asan_version(clause.version) for one in asked for clause in one.specifier)
        may_have_asan = is_named or self._site.host.hardware.sanitizer or package.index == offers.INSTALLED
        if is_asan_version(package.version) and not may_have_asan:
            raise errors.HostError(f"{package} {candidates.UNASKED_ASAN}", tip="name another version of it")
        is_chosen = package.index in (offers.CHOSEN, offers.INSTALLED) or is_index(package.index, self._index)
        is_of_rocm = self._rocm is not None and is_index(package.index, self._rocm.url)
        if is_chosen or (is_of_rocm and (requested.is_rocm_project(name) or not is_closed_project(name))):
            return
        if is_closed_project(name) or name in self._companions:
            raise self._make_absent_error(name)
        if package.is_sdist or offers.is_pure_wheel(package.name):
            return
        others = [p.project for p in packages if name in p.required_by and is_closed_project(p.project)]
        others += ["torch"] if requested.requires_pure_wheel(name) else []
        if others:
            raise errors.HostError(
                f"{package} of the index of dependencies is refused: it has compiled code and requires "
                f"{others[0]}: it was built for another build of {others[0]}",
                tip="build it against this torch, or name an index that has it with --index",
            )

    def _require_signed_files(self, packages: Iterable[LockedPackage]) -> None:
        """Raise HostError for a file that the signed pages do not state, of those that uv read by itself."""
        for package in packages:
            if package.index in (offers.CHOSEN, offers.INSTALLED):
                continue
            reach = self._site.reach
            links = index_pages.read_project_links(self._index, package.project, reach) or ()
            stated = {(reader.file_name_of_link(link), link.sha256) for link in links}
            is_of_index = bool(links) or is_index(package.index, self._index)
            if is_of_index and (package.file, package.sha256) not in stated:
                raise errors.HostError(
                    f"{package.file} from {strip_credentials(package.url)} is not what the signed page of "
                    f"{package.project} states",
                    tip="somebody changed it, or is changing it: try again, then tell whoever runs the index",
                )


def is_index(first: str, second: str) -> bool:
    """Tell whether two addresses are of one index."""
    return strip_credentials(first).rstrip("/") == strip_credentials(second).rstrip("/")
