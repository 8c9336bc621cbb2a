"""Read the statements of a set, which say how its wheels were made and who signed that; judge them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from rocm_wheels.core import errors, parallel
from rocm_wheels.package import provenance
from rocm_wheels.release import policy, store_paths, verdict, wheel_set
from rocm_wheels.release.verdict import reason
from rocm_wheels.stores.store import Store, read_files
from rocm_wheels.wheels import statement
from rocm_wheels.wheels.statement import WheelOrigin


@dataclass(frozen=True)
class StoredStatement:
    """What is known of the statement of a wheel: who signed it ("": nobody listed), and what is wrong.

    ``earlier``: who signed the statements in it, of the wheels that this one was made of.
    """

    signer: str = ""
    trouble: str = ""
    earlier: frozenset[str] = frozenset()


def read_stored_origin(
    store: Store, paths: store_paths.FamilyPaths, file: wheel_set.SetFile
) -> WheelOrigin | None:
    """Return a wheel of a set with its statement; None where it has none.

    DataError where the statement is gone, is not the one that the set names, or is about another wheel.
    """
    if not file.statement:
        return None
    path = paths.pool_file(file.sha256, file.name) + statement.STATEMENT_SUFFIX
    signature_path = paths.pool_file(file.sha256, file.name) + statement.STATEMENT_SIGNATURE_SUFFIX
    stored = read_files(store, (path, signature_path))
    if (content := stored[path]) is None:
        raise errors.DataError(f"{store.url_of(path)} is gone")
    if hashlib.sha256(content).hexdigest() != file.statement:
        raise errors.DataError(f"{store.url_of(path)} is not the statement that the set was staged with")
    provenance.parse_stored_statement(content, name=store.url_of(path), wheel=file.name, sha256=file.sha256)
    return WheelOrigin(file.name, file.sha256, content, stored[signature_path])


def read_set_statements(
    store: Store,
    paths: store_paths.FamilyPaths,
    document: wheel_set.SetDocument,
    signers: Mapping[str, str],
    env: Mapping[str, str],
) -> dict[str, StoredStatement]:
    """Return what is known of the statements of a set, by the sha256 of the wheels that have one.

    ``signers`` are keys by name. UsageError without ssh-keygen where something is signed.
    """

    def read(file: wheel_set.SetFile) -> tuple[str, StoredStatement | None]:
        try:
            origin = read_stored_origin(store, paths, file)
            if origin is None:
                return file.sha256, None
            newest = statement.parse_statement(origin.statement, name=f"the statement of {file.name}")
            signed = [(newest, origin.signature), *(statement.walk_statements(newest) if signers else ())]
        except errors.DataError as fault:
            return file.sha256, StoredStatement(trouble=errors.explain_error(fault))
        signer, *earlier = (
            "" if signature is None else provenance.check_signature(each.content, signature, signers, env)
            for each, signature in signed
        )
        return file.sha256, StoredStatement(signer, earlier=frozenset(earlier))

    rows = parallel.run_in_parallel(read, document.files)
    return {sha256: stored for sha256, stored in rows if stored is not None}


def judge_statements(
    document: wheel_set.SetDocument,
    rule: policy.ProvenanceRule | None,
    statements: Mapping[str, StoredStatement],
) -> verdict.RuleResult | None:
    """Return whether it is known of every wheel how it was made, and who answers for that; None: not asked.

    A statement that is not what the set was staged with, or is about another wheel, fails in each case.
    """
    files = document.files
    wrong = [stored.trouble for stored in statements.values() if stored.trouble]
    without = tuple(file.name for file in files if file.sha256 not in statements)
    if wrong:
        reasons = tuple(reason("bad-statement", fault=fault) for fault in wrong)
        return verdict.RuleResult("provenance", "fail", reasons)
    if rule is None:
        return None
    if without:
        lack = reason("no-statement", files=without, wheels=len(files))
        return verdict.RuleResult("provenance", "fail", (lack,))
    unsigned = tuple(file.name for file in files if statements[file.sha256].signer not in rule.signed_by)
    if rule.signed_by and unsigned:
        lack = reason("unsigned-statement", files=unsigned, wheels=len(files), signers=rule.signed_by)
        return verdict.RuleResult("provenance", "fail", (lack,))
    known = reason("statements", wheels=len(files), signers=rule.signed_by)
    return verdict.RuleResult("provenance", "pass", (known,))
