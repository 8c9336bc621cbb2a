"""What is known of all sets of a family, in words: the last result of each kind on each GPU."""

from __future__ import annotations

from rocm_wheels.errors import DataError
from rocm_wheels.parallel import each
from rocm_wheels.release.evidence import Evidence, parse_evidence
from rocm_wheels.release.layout import Layout, Places
from rocm_wheels.stores.store import Missing, Store

_JOBS = 8


def results_of(store: Store, layout: Layout, family: str) -> dict[str, list[str]]:
    """Return, for each set with results, lines such as ``smoke on gfx942: pass``.

    One that cannot be read says so: it could be a failure. Whether signatures are those of people who count
    is up to the gate.
    """
    places = Places(layout, family)
    folder = f"{places.root}/{layout.evidence}"
    paths = [listed.path for listed in store.listing(folder)]
    read = each(lambda path: _read(store, path), paths, jobs=_JOBS)
    last: dict[str, dict[str, str]] = {}
    for path, found in sorted(
        zip(paths, read, strict=True), key=lambda pair: pair[0]
    ):  # names begin with the time
        set_id = path.removeprefix(f"{folder}/").partition("/")[0]
        if found is None:
            last.setdefault(set_id, {})[path] = f"{path.rpartition('/')[2]} cannot be read"
        else:
            what = f"{found.kind} on {found.gfx}" if found.gfx else found.kind
            last.setdefault(set_id, {})[what] = f"{what}: {found.outcome}"
    return {set_id: list(found.values()) for set_id, found in last.items()}


def _read(store: Store, path: str) -> Evidence | None:
    try:
        content = store.read(path).content
        return parse_evidence(content, where=path, name=path.rpartition("/")[2].removesuffix(".json"))
    except (DataError, Missing):
        return None
