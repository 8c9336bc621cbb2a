"""From a request to the files of a set: torch is chosen, uv resolves the rest around it, the rules are held.

The pages of projects with code for GPUs are read here, and given to uv as they may be taken (``resolve``):
with the builds for the torch that was chosen, and variants as ``choose`` ranks them. What uv reads by itself
is judged by the index that it names (``requested`` has the rules).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename
from packaging.version import InvalidVersion, Version

from rocm_wheels.core import errors, log, parallel
from rocm_wheels.index import reader
from rocm_wheels.models.closed_projects import is_closed_project
from rocm_wheels.user import candidates, choose, fetch, index_pages, requested, resolve
from rocm_wheels.user.environment import InstallTarget
from rocm_wheels.user.host import TargetHost
from rocm_wheels.user.install_options import UnservedGpuError
from rocm_wheels.user.installed_packages import InstalledDistribution
from rocm_wheels.user.lock import LockedPackage, strip_credentials
from rocm_wheels.wheels import dist_info

if TYPE_CHECKING:
    import requests

    from rocm_wheels.user.signed_index import SignedIndexes

_JOBS = 8
_LARGEST_KEPT_ANSWER = 16 << 20
_DEVICE_EXTRA = "device-"


class PlanReader(reader.IndexReader):
    """Reads an index for one plan: each page once, so that all of the plan is about the same state of it.

    METADATA of a wheel is read also from a server that sends no parts of files, such as ``python -m
    http.server``: then the file is fetched, which is wanted soon. ``fetched`` has these by URL. ``variables``
    name proxies and certificates, where this process has none.
    """

    def __init__(self, cache: Path, variables: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._cache, self._variables = cache, variables or {}
        self._answers: dict[tuple[str, str], reader.IndexAnswer] = {}
        self._locks: dict[tuple[str, str], threading.Lock] = {}
        self.fetched: dict[str, LockedPackage] = {}

    def get(self, url: str, *, accept: str = "*/*") -> reader.IndexAnswer:
        """Return a file or page, as it was when it was first read."""
        key = url, accept
        with self._locks.setdefault(key, threading.Lock()):
            if key not in self._answers:
                answer = super().get(url, accept=accept)
                if len(answer.content) > _LARGEST_KEPT_ANSWER:
                    return answer
                self._answers[key] = answer
            return self._answers[key]

    def fetch_metadata_and_variant(
        self, url: str, name: str, size: int | None, *, variant: bool = True
    ) -> tuple[bytes, str | None]:
        """Return METADATA and ``variant.json``, as ``IndexReader`` does."""
        try:
            return super().fetch_metadata_and_variant(url, name, size, variant=variant)
        except reader.UnusableAnswerError:
            log.log_note(f"the server sends no parts of files: {name} is fetched to see what it requires")
        fields = dist_info.split_wheel_name(name)
        plain = replace(fields, label="").file_name
        package = LockedPackage(canonicalize_name(fields.distribution), Version(fields.version), plain, url)
        (self.fetched[url],) = fetch.fetch_packages([package], self._cache, variables=self._variables)
        return super().fetch_metadata_and_variant(self.fetched[url].url, name, None, variant=variant)

    def _get_session(self) -> requests.Session:
        return fetch.follow_variables(super()._get_session(), self._variables)


@dataclass(frozen=True)
class InstallRequest:
    """What a user wants. ``gfx`` and ``rocm`` state another machine.

    ``venv`` is the folder of an environment that is made of ``python`` where it is not there. ``find_links``
    are folders and pages whose wheels count as those of the chosen index, but for torch's. ``signers`` are
    public keys by name: one of them must have signed the statements of how wheels of recipes were made.
    ``signed`` says which pages of the index are taken; None: all. ``allow_cpu``: a torch that serves no GPU
    of this machine is taken, too. ``lock`` has everything: nothing is chosen. ``whole``: also what is
    installed and stays is to have a file, as a lock or a folder for other machines does.
    """

    packages: tuple[str, ...] = ()
    index: str | None = None
    dependency_index: str | None = None
    rocm_index: str | None = None
    find_links: tuple[str, ...] = ()
    python: Path | None = None
    venv: Path | None = None
    channel: str = "stable"
    pre: bool = False
    gfx: tuple[str, ...] = ()
    rocm: str | None = None
    signers: Mapping[str, str] | None = None
    signed: SignedIndexes | None = None
    allow_cpu: bool = False
    lock: Path | None = None
    whole: bool = False


@dataclass(frozen=True)
class PackageSet:
    """The files; ``requirements`` is what uv was asked for, ``choice`` that of torch."""

    packages: tuple[LockedPackage, ...]
    index: str
    indexes: tuple[str, ...]
    requirements: tuple[str, ...]
    choice: candidates.WheelChoice | None


class SetPlanner:
    """Plans one set for one machine and the Python of ``target``.

    ``dependencies`` is the index of what the chosen one lacks, "" for none; ``present`` is what is installed,
    of which stays what fits. ``refused`` are known indexes that are passed over, as their torch was refused.
    """

    def __init__(  # noqa: PLR0917 - a request, a machine, and the ways out
        self,
        request: InstallRequest,
        dependencies: str,
        present: Mapping[str, InstalledDistribution],
        host: TargetHost,
        target: InstallTarget,
        reach: PlanReader,
        env: Mapping[str, str],
        cache: Path,
        *,
        refused: Mapping[str, UnservedGpuError] | None = None,
    ) -> None:
        self._refused = refused
        self._request, self._dependencies, self._host, self._target = request, dependencies, host, target
        self._reach, self._env, self._cache = reach, env, cache
        self._packages = requested.parse_packages(request.packages, target.environment.markers)
        self._rocm = reader.resolve_index_url(request.rocm_index) if request.rocm_index is not None else None
        self._links = [
            text if index_pages.is_page_url(text) else reader.resolve_index_url(text)
            for text in request.find_links
        ]
        self._versions = {name: installed.version for name, installed in present.items()}
        stubs = [] if request.whole else map(self._make_installed_stub, present.values())
        self._kept = list(filter(None, stubs))
        self._index = ""
        self._listed: dict[str, list[reader.IndexLink]] = {}  # by project, of folders and pages of wheels
        self._listed_rocm: dict[str, list[reader.IndexLink]] = {}  # of an index of ROCm's that lists them
        self._left_out: list[str] = []  # projects of which compiled wheels are not offered

    def plan(self) -> PackageSet:
        """Choose and resolve. UsageError for bad input, HostError when nothing fits or nothing may."""
        request = self._request
        torch = requested.find_torch_requirement(self._packages)
        if torch is None and request.index is None:
            raise errors.UsageError(
                "nothing of this belongs to torch, which says from which index things come",
                tip="name torch as well, or the index with --index",
            )
        if request.signed is not None:
            self._check_pages(request.signed)
        choice = self._choose(torch, request.index) if torch is not None else None
        self._index = choice.index if choice else reader.resolve_index_url(request.index or "")
        self._dependencies = self._dependencies or self._index  # where pip is to ask no index
        self._list_flat_pages("torch" if choice else next(iter(self._packages)))
        if choice is None:
            lines = [str(requirement) for requirement in self._packages.values()]
            packages = self._ask(lines, {})
        else:
            choice, lines, packages = self._resolve_around(choice)
        for package in packages:
            self._require_origin(package, packages)
        return PackageSet(
            tuple(map(self._add_digest, packages)),
            self._index, tuple(self._list_indexes()), tuple(lines), choice,
        )  # fmt: skip

    def _add_digest(self, package: LockedPackage) -> LockedPackage:
        """Return a package with the digest of what was fetched to see what it requires."""
        fetched = self._reach.fetched.get(package.url)
        if fetched is None or package.sha256 is not None:
            return package
        log.log_warning(f"{requested.NO_DIGEST} {package.file}: {requested.ONLY_CONNECTION}")
        return replace(package, sha256=fetched.sha256, size=fetched.size)

    # --- torch ---

    def _choose(self, requirement: str, index: str | None) -> candidates.WheelChoice:
        """Choose a project's wheel; of the known indexes one that has all the companions, too."""
        request, host = self._request, replace(self._host, versions=self._versions)
        companions = [name for name in self._packages if is_closed_project(name) and name != "torch"]
        requirements = [requirement, *companions] if index is None else [requirement]
        channel, pre, allow_cpu = request.channel, request.pre, request.allow_cpu
        return choose.choose_wheels(
            requirements, index, host, self._reach,
            channel=channel, pre=pre, allow_cpu=allow_cpu, refused=self._refused,
        )[0]  # fmt: skip

    def _resolve_around(
        self, choice: candidates.WheelChoice
    ) -> tuple[candidates.WheelChoice, list[str], list[LockedPackage]]:
        """Resolve with exactly the torch that was chosen.

        Where that fails, another may do: it is taken where only a companion was asked for, else named.
        """
        asked = self._packages
        try:
            return choice, *self._resolve_with(choice)
        except errors.HostError as failure:
            torch = _pinned_torch(choice)
            torch.specifier = asked["torch"].specifier if "torch" in asked else SpecifierSet()
            lines = [str(torch), *(str(entry) for name, entry in asked.items() if name != "torch")]
            try:
                packages = self._ask(lines, {"torch": self._list_offers("torch", choice)})
                for package in packages:
                    self._require_origin(package, packages)  # others would be refused again
            except errors.HostError:
                raise failure from None
            version = next(package.version for package in packages if package.project == "torch")
            if "torch" in asked or str(version) == torch_version(choice):
                together = " ".join(f"'{p.project}=={p.version}'" for p in packages if p.project in asked)
                failure.tip = f"these go together: rocm-wheels install {together}"
                raise failure from None
        choice = self._choose(f"torch=={version}", self._index)
        return choice, *self._resolve_with(choice)

    def _resolve_with(self, choice: candidates.WheelChoice) -> tuple[list[str], list[LockedPackage]]:
        picked = choice.picked
        self._versions["torch"] = picked.version
        torch, stub = _pinned_torch(choice), self._make_stub("torch", picked)
        lines = [
            str(torch),
            *(str(entry) for name, entry in self._packages.items() if name != "torch"),
        ]
        pages: dict[str, Sequence[reader.IndexLink | resolve.StubWheel]] = {"torch": [stub]}
        metadata = dist_info.parse_metadata(stub.content, name=f"METADATA of {picked.name}")
        closed = [name for name in self._packages if is_closed_project(name) and name != "torch"]
        constraints = []
        for requirement in map(Requirement, metadata.requires_dist):
            name, extras = canonicalize_name(requirement.name), torch.extras or {""}
            if requirement.marker and not any(
                requirement.marker.evaluate({**self._target.environment.markers, "extra": extra})
                for extra in extras
            ):
                continue
            if is_closed_project(name):
                closed.append(name)
                # uv takes a pre-release that somebody requires only where it is asked for
                constraints += [f"{name}>=0.dev0"] if requirement.specifier.prereleases else []
        names = dict.fromkeys(closed)
        offers = parallel.run_in_parallel(lambda name: self._list_offers(name, choice), names, jobs=_JOBS)
        for project, page in zip(names, offers, strict=True):
            if not page:
                raise self._make_absent_error(project)
            pages[project] = page
        packages = self._ask(lines, pages, constraints)
        # torch's companions may have kernels of their own in other wheels, by the same extras
        device_extras = {extra for extra in torch.extras if extra.startswith(_DEVICE_EXTRA)}
        more = [] if not device_extras else [
            f"{package.project}[{','.join(sorted(shared))}]=={package.version}"
            for package in packages
            if package.index == resolve.CHOSEN and package.project != "torch" and not package.is_sdist
            and (shared := device_extras & self._read_extras(package))
        ]  # fmt: skip
        return (lines + more, self._ask(lines + more, pages, constraints)) if more else (lines, packages)

    def _read_extras(self, package: LockedPackage) -> set[str]:
        link = next(link for link in self._read_links(package.project) if link.url == package.url)
        metadata = index_pages.read_wheel_metadata(link, self._reach)
        return set(
            map(canonicalize_name, dist_info.parse_metadata(metadata, name=package.name).provides_extra)
        )

    # --- what is offered ---

    def _list_indexes(self) -> Iterator[str]:
        if not self._listed_index and not is_index(self._index, self._dependencies):
            yield self._index
        if self._rocm is not None and not self._listed_rocm:
            yield self._rocm
        yield self._dependencies

    def _list_flat_pages(self, project: str) -> None:
        """Read folders and pages that just list wheels: --find-links, and the indexes that are such ones."""
        self._listed_index = index_pages.read_project_links(self._index, project, self._reach) is None
        places = [self._index] if self._listed_index else []
        for place in (*places, *self._links):
            self._list_files(place, self._listed)
        if self._rocm is not None and index_pages.read_project_links(self._rocm, "rocm", self._reach) is None:
            self._list_files(self._rocm, self._listed_rocm)

    def _list_files(self, place: str, by_project: dict[str, list[reader.IndexLink]]) -> None:
        for link in index_pages.list_links(place, self._reach):
            if parsed := parse_file(link):
                by_project.setdefault(parsed[0], []).append(link)

    def _read_links(self, project: str) -> list[reader.IndexLink]:
        """Return the files that the chosen index and --find-links have of a project, else those of ROCm's."""
        listed = self._listed.get(project, [])
        if not self._listed_index:
            listed = [*(index_pages.read_project_links(self._index, project, self._reach) or ()), *listed]
        if listed or self._rocm is None or not requested.is_rocm_project(project):
            return listed
        if self._listed_rocm:
            return self._listed_rocm.get(project, [])
        return [*(index_pages.read_project_links(self._rocm, project, self._reach) or ())]

    def _list_offers(
        self, project: str, choice: candidates.WheelChoice
    ) -> list[reader.IndexLink | resolve.StubWheel]:
        """Return what uv is offered of a project: the builds for torch, of variants the best of a version."""
        parsed = [(link, found) for link in self._read_links(project) if (found := parse_file(link))]
        versions = {version for _, (name, version, _) in parsed if name == project}
        allowed = select_same_build(versions, Version(torch_version(choice)), is_torch=project == "torch")
        varied = sorted({version for _, (_, version, label) in parsed if label and version in allowed})
        offers: list[reader.IndexLink | resolve.StubWheel] = [
            link
            for link, (name, version, label) in parsed
            if name == project and version in allowed and version not in varied and label is None
        ]

        def choose_variant(version: Version) -> resolve.StubWheel | None:
            try:
                picked = self._choose(f"{project}=={version}", self._index).picked
            except reader.UnreachableError:
                raise
            except errors.HostError:
                return None  # a version that this machine can use no variant of is not offered
            return self._make_stub(project, picked)

        variants = parallel.run_in_parallel(choose_variant, varied, jobs=_JOBS)
        return [*offers, *filter(None, variants)]

    def _make_stub(self, project: str, picked: candidates.ChoiceCandidate) -> resolve.StubWheel:
        link = reader.IndexLink(
            picked.name, picked.name, picked.url, metadata=picked.metadata, size=picked.size
        )
        content = index_pages.read_wheel_metadata(link, self._reach)
        plain = replace(dist_info.split_wheel_name(picked.name), label="").file_name
        package = LockedPackage(
            project, Version(picked.version), plain, picked.url, picked.sha256, picked.size, resolve.CHOSEN,
            properties=picked.properties if picked.label else None,
        )  # fmt: skip
        return resolve.StubWheel(package, content, picked.requires_python)

    def _make_installed_stub(self, installed: InstalledDistribution) -> resolve.StubWheel | None:
        """Return what is installed of a project that may come from the index of dependencies, to stay."""
        name = installed.name
        metadata = installed.info / "METADATA"
        if is_closed_project(name) or requested.requires_pure_wheel(name) or installed.editable:
            return None
        try:
            version = Version(installed.version)
            content = metadata.read_bytes()
        except (InvalidVersion, OSError):
            return None
        wheel = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
        url = installed.info.as_uri()
        return resolve.StubWheel(LockedPackage(name, version, wheel, url, index=resolve.INSTALLED), content)

    # --- uv, and the rules ---

    def _ask(
        self,
        lines: Sequence[str],
        pages: Mapping[str, Sequence[reader.IndexLink | resolve.StubWheel]],
        constraints: Sequence[str] = (),
    ) -> list[LockedPackage]:
        request = self._request
        offered: dict[str, Sequence[reader.IndexLink | resolve.StubWheel]] = {**self._listed}
        names = {*self._listed, *filter(requested.is_rocm_project, self._listed_rocm)} - {*pages}
        offered |= {name: self._read_links(name) for name in sorted(names) if is_closed_project(name)}
        offered |= pages
        for name in self._packages:
            is_open = requested.requires_pure_wheel(name) and not is_closed_project(name)
            if is_open and name not in offered and (page := self._list_pure_wheels(name)):
                offered[name] = page
        if request.pre:
            constraints = [*constraints, *(f"{name}>=0.dev0" for name in pages)]
        asked = resolve.ResolveRequest(
            lines, [*self._list_indexes()], offered, self._kept, constraints=constraints
        )
        python, markers = self._target.runnable_python, self._target.environment.markers
        try:
            return resolve.resolve_packages(asked, python, markers, self._host.tags, self._cache, self._env)
        except errors.HostError as cause:
            raise self._explain_failure(str(cause)) from None

    def _list_pure_wheels(self, project: str) -> list[reader.IndexLink]:
        """Return the wheels without compiled code that the index of dependencies has, where ours has none."""
        if index_pages.read_project_links(self._index, project, self._reach):
            return []
        links = index_pages.read_project_links(self._dependencies, project, self._reach) or ()
        pure = [link for link in links if is_pure_wheel(reader.file_name_of_link(link))]
        if len(pure) < len(links):
            self._left_out.append(project)
        return pure

    def _make_absent_error(self, project: str, message: str = "") -> errors.HostError:
        option = "--rocm-index" if requested.is_rocm_project(project) else "--index"
        return errors.HostError(
            f"{message}{project} holds code for GPUs and is only taken from the index that was chosen, "
            f"which has none for this Python and platform: {strip_credentials(self._index)}",
            tip=f"name an index that has it with {option}",
        )

    def _explain_failure(self, message: str) -> errors.HostError:
        """Say what lies behind a failure of uv's, where the rules do."""
        unknown = re.findall(r"(?<![\w.-])([A-Za-z0-9][\w.-]*?)(?:\[[\w,-]+\])? was not found", message)
        names = unknown + re.findall(r"no versions? of ([A-Za-z0-9][\w.-]*)", message)
        pages = re.findall(rf"{re.escape(strip_credentials(self._dependencies))}([\w.-]+)/", message)
        for name in dict.fromkeys(map(canonicalize_name, [*names, *pages])):
            # uv takes a page to log in for one without files; ours says what is wrong with it
            index_pages.read_project_links(self._dependencies, name, self._reach)
        closed = [name for name in map(canonicalize_name, names) if is_closed_project(name)]
        if left_out := [name for name in self._left_out if re.search(rf"\b{re.escape(name)}\b", message)]:
            return errors.HostError(
                f"{message}\nof {left_out[0]} the chosen index has nothing, and only wheels without compiled "
                "code are taken from the index of dependencies: those with are built for another torch",
                tip="name another version of it, or an index that has it with --index",
            )
        if closed:
            return self._make_absent_error(closed[0], f"{message}\n")
        if unknown:
            where = strip_credentials(self._dependencies)
            return errors.HostError(
                message, tip=f"is the name {unknown[0]} right? What the index lacks is looked for in {where}"
            )
        return errors.HostError(
            message, tip="name versions that go together, such as 'torch==2.9.*'; or another --index"
        )

    def _require_origin(self, package: LockedPackage, packages: Iterable[LockedPackage]) -> None:
        """Raise HostError for a package that may not come from where it is."""
        name = package.project
        if package.index in (resolve.CHOSEN, resolve.INSTALLED) or is_index(package.index, self._index):
            return
        is_of_rocm = self._rocm is not None and is_index(package.index, self._rocm)
        if is_closed_project(name):
            if not (is_of_rocm and requested.is_rocm_project(name)):
                raise self._make_absent_error(name)
        elif not is_of_rocm and not package.is_sdist and not is_pure_wheel(package.name):
            closed = [
                other.project
                for other in packages
                if name in other.required_by and is_closed_project(other.project)
            ]
            if closed or requested.requires_pure_wheel(name):
                other = closed[0] if closed else "torch"
                raise errors.HostError(
                    f"{package} of the index of dependencies is refused: it has compiled code and requires "
                    f"{other}: it was built for another build of {other}",
                    tip="build it against this torch, or name an index that has it with --index",
                )

    def _check_pages(self, signed: SignedIndexes) -> None:
        """Have pages of the index checked as they are signed; not those of other indexes that were named."""
        request = self._request
        exempt = {self._dependencies, *([self._rocm] if self._rocm else []), *self._links}
        # signed, also where dependencies come from it
        exempt -= {reader.resolve_index_url(request.index)} if request.index else set()
        self._reach.page_check = replace(signed, exempt=frozenset(exempt)).check_page

    def require_signed_files(self, packages: Iterable[LockedPackage]) -> None:
        """Raise HostError for a file that the signed pages do not state, of those that uv read by itself."""
        for package in packages:
            if package.index in (resolve.CHOSEN, resolve.INSTALLED):
                continue
            links = index_pages.read_project_links(self._index, package.project, self._reach) or ()
            stated = {(reader.file_name_of_link(link), link.sha256) for link in links}
            if (links or is_index(package.index, self._index)) and (
                package.file,
                package.sha256,
            ) not in stated:
                raise errors.HostError(
                    f"{package.file} from {strip_credentials(package.url)} is not what the signed page of "
                    f"{package.project} states",
                    tip="somebody changed it, or is changing it: try again, then tell whoever runs the index",
                )


def _pinned_torch(choice: candidates.WheelChoice) -> Requirement:
    """Return the requirement that a choice of torch came to, with the extras for the GPUs."""
    return Requirement(choice.requires[0])


def torch_version(choice: candidates.WheelChoice) -> str:
    """Return the version of the torch that was chosen."""
    return choice.picked.version


def is_index(first: str, second: str) -> bool:
    """Tell whether two addresses are of one index."""
    return strip_credentials(first).rstrip("/") == strip_credentials(second).rstrip("/")


def is_pure_wheel(file_name: str) -> bool:
    """Tell whether a wheel has no compiled code, by its name."""
    return file_name.endswith("-none-any.whl")


def parse_file(link: reader.IndexLink) -> tuple[str, Version, str | None] | None:
    """Return the project, version and label of a file; None for what no installer takes."""
    name = reader.file_name_of_link(link)
    try:
        if name.endswith(".whl"):
            wheel = dist_info.parse_wheel_name(name)
            return wheel.name, wheel.version, wheel.label
        if name.endswith(".tar.gz"):
            return (*parse_sdist_filename(name), None)
    except (errors.DataError, InvalidSdistFilename, InvalidVersion):
        return None
    return None


def select_same_build(versions: Iterable[Version], torch: Version, *, is_torch: bool = False) -> set[Version]:
    """Leave out builds that are for another torch, by the local part of their versions.

    Of one public version those with torch's own local part (``+rocm7.2``) come before all others; ``+cu128``
    is never beside ``+rocm7.2``. Where torch says nothing, builds that say nothing come first.
    """
    versions, kind = set(versions), candidates.get_build_kind(torch)
    same = {version.public for version in versions if version.local == torch.local}
    return {
        version
        for version in versions
        if version.local == torch.local
        or (
            (is_torch or version.public not in same)
            and (not kind or candidates.get_build_kind(version) in ("", kind))
        )
    }
