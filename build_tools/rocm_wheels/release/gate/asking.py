"""The gate as a store is asked: all evidence of a set is read, and judged at this moment."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from rocm_wheels.errors import UsageError
from rocm_wheels.records import suggest_name
from rocm_wheels.release.evidence_store import StoredEvidence, read_all_evidence, warn_of_wrong_clocks
from rocm_wheels.release.gate.judge import judge_set
from rocm_wheels.release.gate.policy import Policy, load_policy
from rocm_wheels.release.gate.verdict import Verdict
from rocm_wheels.release.layout import StoreLayout
from rocm_wheels.release.sets import SetDocument
from rocm_wheels.stores.store import Store


def judge_staged_set(
    store: Store,
    layout: StoreLayout,
    document: SetDocument,
    channel: str,
    *,
    policy: Policy,
    now: datetime,
    env: Mapping[str, str],
) -> tuple[Verdict, list[StoredEvidence]]:
    """Return what the gate of a channel says of a staged set, and the evidence that it read.

    Raises UsageError for a channel that the policy does not have, and DataError for evidence that cannot be
    read. Clocks that are wrong are warned of.
    """
    require_channel(policy, channel)
    evidence = read_all_evidence(store, layout, document, signers=policy.signers, env=env)
    warn_of_wrong_clocks(evidence, now)
    return judge_set(policy, channel, document, evidence, now), evidence


def require_channel(policy: Policy, channel: str) -> None:
    """Raise UsageError, with the name that was probably meant, for a channel that a policy does not have."""
    if channel not in policy.channels:
        raise UsageError(
            f"the policy has no channel {channel}{suggest_name(channel, policy.channels)}",
            tip=f"it has {', '.join(policy.channels)}",
        )


def load_policy_for(channel: str | None, path: Path | None) -> Policy:
    """Return the policy at ``path``, by default our own, which has ``channel`` where one is named.

    Raises as ``load_policy`` and ``require_channel`` do.
    """
    policy = load_policy(path)
    if channel is not None:
        require_channel(policy, channel)
    return policy
