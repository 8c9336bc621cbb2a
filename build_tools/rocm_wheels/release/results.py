"""What is known of all sets of a family, in words: the last result of each kind on each GPU."""

from __future__ import annotations

from rocm_wheels.errors import DataError
from rocm_wheels.parallel import run_in_parallel
from rocm_wheels.release.evidence import Evidence, parse_evidence
from rocm_wheels.release.layout import StoreLayout, FamilyPaths
from rocm_wheels.stores.store import NotInStoreError, Store

_RESULT_JOBS = 8


def summarize_results(store: Store, layout: StoreLayout, family: str) -> dict[str, list[str]]:
    """Return, for each set with results, lines such as ``smoke on gfx942: pass``.

    One that cannot be read says so: it could be a failure. Whether signatures are those of people who count
    is up to the gate.
    """
    family_paths = FamilyPaths(layout, family)
    folder = f"{family_paths.family_folder}/{layout.evidence}"
    paths = [listed.path for listed in store.listing(folder)]
    read = run_in_parallel(lambda path: _read_result(store, path), paths, jobs=_RESULT_JOBS)
    last: dict[str, dict[str, str]] = {}
    for path, evidence in sorted(
        zip(paths, read, strict=True), key=lambda pair: pair[0]
    ):  # names begin with the time
        set_id = path.removeprefix(f"{folder}/").partition("/")[0]
        if evidence is None:
            last.setdefault(set_id, {})[path] = f"{path.rpartition('/')[2]} cannot be read"
        else:
            label = f"{evidence.kind} on {evidence.gfx}" if evidence.gfx else evidence.kind
            last.setdefault(set_id, {})[label] = f"{label}: {evidence.outcome}"
    return {set_id: list(evidence.values()) for set_id, evidence in last.items()}


def _read_result(store: Store, path: str) -> Evidence | None:
    try:
        content = store.read(path).content
        return parse_evidence(content, where=path, name=path.rpartition("/")[2].removesuffix(".json"))
    except (DataError, NotInStoreError):
        return None
