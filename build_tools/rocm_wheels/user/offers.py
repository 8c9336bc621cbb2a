"""What there is of a project that uv may take: files of an index, or of a folder or page of wheels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from packaging.utils import parse_sdist_filename
from packaging.version import Version

from rocm_wheels.core import errors
from rocm_wheels.index import reader
from rocm_wheels.models.versions import is_asan_version
from rocm_wheels.user import candidates, index_pages
from rocm_wheels.user.lock import LockedPackage
from rocm_wheels.wheels import dist_info

CHOSEN, INSTALLED = "chosen", "installed"  # the index of packages whose pages we gave to uv; of what is there


@dataclass(frozen=True)
class Offer:
    """A file that uv may take, as ``package`` is to be installed. ``content`` is METADATA in its place.

    What its page says: ``requires_python``; ``yanked``, the reason; ``metadata``, the digest of METADATA
    beside it ("" without one). None where it says nothing.
    """

    package: LockedPackage
    content: bytes | None = None
    requires_python: str = ""
    yanked: str | None = None
    metadata: str | None = None


class WheelPlace:
    """Where wheels are: an index, or a folder or page that just lists them; ``listed`` has these by project.

    An index is told by its page of ``project``; None: it is no index.
    """

    def __init__(self, url: str, project: str | None, reach: reader.IndexReader) -> None:
        self.url, self._reach = url, reach
        self.listed: dict[str, list[Offer]] = {}
        self.is_index = (
            project is not None and index_pages.read_project_links(url, project, reach) is not None
        )
        for link in () if self.is_index else index_pages.list_links(url, reach):
            if offer := make_offer(link):
                self.listed.setdefault(offer.package.project, []).append(offer)

    def list_offers(self, project: str) -> list[Offer]:
        """Return the files of a project that an installer takes."""
        if not self.is_index:
            return self.listed.get(project, [])
        links = index_pages.read_project_links(self.url, project, self._reach) or ()
        offers = filter(None, map(make_offer, links))
        return [offer for offer in offers if offer.package.project == project]


def make_offer(link: reader.IndexLink, index: str = CHOSEN) -> Offer | None:
    """Return a file as uv may take it; None for what no installer takes. DataError for a digest that is none.

    ``index`` is that of its package. The name of a variant has its label: uv cannot take it as it is.
    """
    name = reader.file_name_of_link(link)
    try:
        if name.endswith(".whl"):
            wheel = dist_info.parse_wheel_name(name)
            project, version = wheel.name, wheel.version
        elif name.endswith(".tar.gz"):
            project, version = parse_sdist_filename(name)
        else:
            return None
    except (errors.DataError, ValueError):  # no name, or a number of more digits than Python reads
        return None
    sha256 = reader.require_link_digest(link)
    package = LockedPackage(project, version, name, link.url, sha256, link.size, index)
    return Offer(package, None, link.requires_python, link.yanked, link.metadata)


def is_pure_wheel(file_name: str) -> bool:
    """Tell whether a wheel has no compiled code, by its name."""
    return file_name.endswith("-none-any.whl")


def is_variant(offer: Offer) -> bool:
    """Tell whether a file is a variant: its name has a label, which no installer reads."""
    name = offer.package.file
    return name.endswith(".whl") and bool(dist_info.split_wheel_name(name).label)


def select_same_build(versions: Iterable[Version], torch: Version, *, is_torch: bool = False) -> set[Version]:
    """Leave out builds that are for another torch, by the local part of their versions.

    Of one public version those with torch's own local part (``+rocm7.2``) come before all others; ``+cu128``
    is never beside ``+rocm7.2``, nor ``.asan`` beside a torch without it. Where torch says nothing, builds
    that say nothing come first.
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
            and (is_asan_version(torch) or not is_asan_version(version))
        )
    }
