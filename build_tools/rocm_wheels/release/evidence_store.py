"""Evidence in a store: written once, read whole, and never passed over.

What cannot be read could be a failure, so reading fails then. Nothing here removes or replaces a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from rocm_wheels import log
from rocm_wheels.errors import DataError, ReleaseError, UsageError
from rocm_wheels.parallel import each
from rocm_wheels.release.evidence import SKEW, Evidence, describe, parse_evidence
from rocm_wheels.release.layout import Area, Layout, Places
from rocm_wheels.release.sets import SetDocument
from rocm_wheels.stores.store import Exists, Store
from rocm_wheels.words import counted

if TYPE_CHECKING:
    from datetime import datetime

_SUFFIX = ".json"
_READ_AT_ONCE = 8
_SIGNATURES_AT_ONCE = 4


@dataclass(frozen=True)
class Known:
    """An evidence as it was read. ``signer`` is who signed it, "" for nobody that is known.

    ``trouble`` says why it cannot speak for a set, "" when it can; against a set it speaks all the same.
    """

    id: str
    evidence: Evidence
    signer: str = ""
    trouble: str = ""


def add_evidence(store: Store, layout: Layout, document: SetDocument, evidence: Evidence) -> bool:
    """Write an evidence down beside its set; tell whether it is new: the same said twice is one.

    Raises UsageError for one from the future, and ReleaseError for one about other wheels than the set's.
    """
    refuse_strangers(document, evidence)
    path = f"{Places(layout, document.family).evidence(document.id)}/{evidence.id}{_SUFFIX}"
    try:
        store.create(path, evidence.to_json())
    except Exists as there:
        same = parse_evidence(store.read(path).content, where=store.url_of(path), name=evidence.id)
        if same.payload != evidence.payload:  # 12 hex digits that agree by chance
            raise ReleaseError(f"{path} says something else: {describe(same)}") from there
        return False
    return True


def refuse_strangers(document: SetDocument, evidence: Evidence) -> None:
    """Raise ReleaseError for an evidence that is of another set, or speaks of wheels that are not its own.

    UsageError for one from the future.
    """
    if evidence.set != document.id:
        raise ReleaseError(f"the evidence is of {evidence.set}, not of {document.id}")
    if others := sorted(set(evidence.hashes) - document.hashes):
        raise ReleaseError(
            f"the evidence speaks of {counted(len(others), 'wheel')} outside {document.id}: "
            f"sha256 {others[0]}",
            tip="test the wheels of the set: its own index has nothing else",
        )
    if evidence.when > evidence.added + SKEW:
        raise UsageError(
            f"the result is from the future: {evidence.when:%Y-%m-%d %H:%M} UTC; here it is "
            f"{evidence.added:%Y-%m-%d %H:%M} UTC",
            tip=f"set the clock of {evidence.host.name} or of this machine; or say --when it was found",
        )


def beside_failures(
    store: Store,
    layout: Layout,
    document: SetDocument,
    made: Sequence[Evidence],
    sign: Callable[[Evidence], Evidence] = lambda one: one,
) -> list[Evidence]:
    """Return evidence that names the failures which are known of the set (its ``beside``), signed.

    What was written down before, by the same person, is named as it was then. Raises ReleaseError for test
    results that were handed in before for something else, and what ``sign`` raises.
    """
    folder = Places(layout, document.family).evidence(document.id)

    def read(path: str) -> tuple[str, Evidence | None]:
        name = path.rpartition("/")[2].removesuffix(_SUFFIX)
        try:
            return name, parse_evidence(store.read(path).content, where=store.url_of(path), name=name)
        except DataError:
            return name, None  # it could be a failure; the gate tells what is wrong with it

    there = dict(each(read, [listed.path for listed in store.listing(folder)], jobs=_READ_AT_ONCE))
    found: list[Evidence] = []
    for one in made:
        known = [other for other in chain(there.values(), found) if other is not None]
        _refuse_used(one, known)
        same = next((other for other in known if other.statement == one.statement), None)
        if same is None:
            failures = {name for name, other in there.items() if other is None or not other.passed}
            failures |= {other.id for other in found if not other.passed}
            beside = tuple(sorted(failures))
        else:
            beside = same.beside
        found.append(sign(one.model_copy(update={"beside": beside})))
    return found


def _refuse_used(evidence: Evidence, known: Sequence[Evidence]) -> None:
    """Raise ReleaseError for a pass by results that were handed in before as those of another run."""
    counts = evidence.source and evidence.passed and evidence.kind in {"smoke", "tests"}
    for one in known if counts else ():
        other = one.gfx != evidence.gfx or not set(one.hashes) & set(evidence.hashes)
        other = other or one.outcome != evidence.outcome  # as of more reports, and now as of fewer
        if one.source == evidence.source and one.kind == evidence.kind and other:
            raise ReleaseError(
                "these results were handed in before, for other wheels, another GPU or more reports: "
                f"{one.id} is {describe(one)}",
                tip="one run is of one GPU and one Python; run the tests there, too",
            )


def evidence_of(
    store: Store,
    layout: Layout,
    document: SetDocument,
    *,
    signers: Mapping[str, str],
    env: Mapping[str, str],
    area: Area = "staging",
) -> list[Known]:
    """Return all that is known of a set, oldest first, with who signed it (``signers``: keys by name).

    Raises DataError for a file that cannot be read, or that was changed.
    """
    folder = Places(layout, document.family, area).evidence(document.id)

    def read(path: str) -> tuple[str, Evidence]:
        name = path.rpartition("/")[2].removesuffix(_SUFFIX)
        return name, parse_evidence(store.read(path).content, where=store.url_of(path), name=name)

    found = each(read, [listed.path for listed in store.listing(folder)], jobs=_READ_AT_ONCE)
    return each(lambda pair: _known(*pair, signers, env), found, jobs=_SIGNATURES_AT_ONCE)


def evidence_anywhere(
    store: Store, layout: Layout, document: SetDocument, *, signers: Mapping[str, str], env: Mapping[str, str]
) -> list[Known]:
    """Return what is known of a set where it is staged, and where it was copied to when it was released.

    Oldest first. What somebody removed from one place still counts. Raises as ``evidence_of``.
    """
    staged = evidence_of(store, layout, document, signers=signers, env=env)
    released = evidence_of(store, layout, document, signers=signers, env=env, area="release")
    found = {one.id: one for one in (*released, *staged)}
    return [found[name] for name in sorted(found)]


def warn_of_clocks(known: Sequence[Known], now: datetime) -> None:
    """Say when evidence was written down after now: this machine's clock, or the other's, is wrong."""
    ahead = [one for one in known if one.evidence.added > now + SKEW]
    if ahead:
        last = max(ahead, key=lambda one: one.evidence.added).evidence
        log.warn(
            f"{len(ahead)} results were written down after now ({now:%Y-%m-%d %H:%M} UTC), the last by "
            f"{last.by} at {last.added:%Y-%m-%d %H:%M} UTC: a clock is wrong, this one or theirs"
        )


def _known(name: str, evidence: Evidence, signers: Mapping[str, str], env: Mapping[str, str]) -> Known:
    from rocm_wheels.release.signing import is_valid, same_key

    if evidence.signature is None:
        return Known(name, evidence)
    if not is_valid(evidence, env):
        return Known(name, evidence, trouble="its signature is not of what it says")
    key = evidence.signature.key
    return Known(name, evidence, next((who for who, theirs in signers.items() if same_key(key, theirs)), ""))
