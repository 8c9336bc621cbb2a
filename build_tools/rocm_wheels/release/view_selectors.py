"""Make the device selectors that views list, so that a plain ``pip install torch`` brings device code there.

The host wheel of a split set requires a selector of its own version (``amd-torch-device``). The set has a
neutral one, which brings nothing; in its place the view of a target lists one that requires the host with the
extras of the view's targets. So the host is stored once, and no METADATA of it is ever another.

A selector lies with its set and not with the page that lists it: lock files name its URL, which holds while
the set is there, whichever set the view is at by then. Its build tag says its targets, and with the document
of the set its bytes follow from its name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from rocm_wheels.index.folder import METADATA_SUFFIX
from rocm_wheels.package.device_selector import Selector, make_selector, read_targets
from rocm_wheels.release import wheel_set
from rocm_wheels.release.store_paths import FamilyPaths
from rocm_wheels.variants import device_names
from rocm_wheels.variants.targets import expand_generics
from rocm_wheels.wheels import dist_info


def make_view_selector(
    document: wheel_set.SetDocument, file: wheel_set.SetFile, targets: Collection[str]
) -> Selector | None:
    """Return what a view of some targets lists in place of a wheel of a set.

    None: the wheel itself, which is no selector, or whose host has no device wheels for these targets.
    """
    host = device_names.find_host_project(file.project)
    if not targets or host is None or not device_names.is_selector(file.project):
        return None
    tags = dist_info.parse_wheel_name(file.name).tags
    held = {
        target
        for part in document.files
        if device_names.find_host_project(part.project) == host
        and part.version == file.version
        and dist_info.parse_wheel_name(part.name).tags & tags
        for target in part.targets
    }
    served = sorted(expand_generics(held).intersection(targets))  # extras are for chips
    return make_selector(host, file.name, file.requires_python, served) if served else None


def make_selector_files(
    paths: FamilyPaths,
    documents: Iterable[wheel_set.SetDocument],
    targets: Collection[str],
    listed: Collection[str] | None = None,
) -> dict[str, bytes]:
    """Return the selectors that a view of some targets lists, and their METADATA, by their paths.

    With ``listed`` those alone of which one of the two files is among these paths.
    """
    files: dict[str, bytes] = {}
    for document in documents:
        for file in document.files:
            if selector := make_view_selector(document, file, targets):
                path = f"{paths.selectors_folder(document.id)}/{selector.file}"
                made = {path: selector.content, path + METADATA_SUFFIX: selector.metadata}
                files |= made if listed is None or not made.keys().isdisjoint(listed) else {}
    return files


def make_earlier_files(
    paths: FamilyPaths, document: wheel_set.SetDocument, listed: Collection[str]
) -> dict[str, bytes]:
    """Return the selectors of a set of which some file is listed in the store, whatever view lists them now.

    Each for itself: of one list of targets, hosts that have device wheels for some of these have others.
    """
    folder = f"{paths.selectors_folder(document.id)}/"
    present = {path for path in listed if path.startswith(folder)}
    made: dict[str, bytes] = {}
    for targets in {
        read_targets(path.removeprefix(folder).removesuffix(METADATA_SUFFIX)) for path in present
    }:
        made |= make_selector_files(paths, [document], targets, present)
    return made
