"""The gate as a store is asked: all evidence of a set is read, and judged at this moment."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from rocm_wheels.errors import UsageError
from rocm_wheels.records import did_you_mean
from rocm_wheels.release.evidence_store import Known, evidence_anywhere, warn_of_clocks
from rocm_wheels.release.gate.judge import judge
from rocm_wheels.release.gate.policy import Policy, load_policy
from rocm_wheels.release.gate.verdict import Verdict
from rocm_wheels.release.layout import Layout
from rocm_wheels.release.sets import SetDocument
from rocm_wheels.stores.store import Store


def ask_gate(
    store: Store,
    layout: Layout,
    document: SetDocument,
    channel: str,
    *,
    policy: Policy,
    now: datetime,
    env: Mapping[str, str],
) -> tuple[Verdict, list[Known]]:
    """Return what the gate of a channel says of a staged set, and the evidence that it read.

    Raises UsageError for a channel that the policy does not have, and DataError for evidence that cannot be
    read. Clocks that are wrong are warned of.
    """
    require_channel(policy, channel)
    known = evidence_anywhere(store, layout, document, signers=policy.signers, env=env)
    warn_of_clocks(known, now)
    return judge(policy, channel, document, known, now), known


def require_channel(policy: Policy, channel: str) -> None:
    """Raise UsageError, with the name that was probably meant, for a channel that a policy does not have."""
    if channel not in policy.channels:
        raise UsageError(
            f"the policy has no channel {channel}{did_you_mean(channel, policy.channels)}",
            tip=f"it has {', '.join(policy.channels)}",
        )


def policy_with(channel: str | None, path: Path | None) -> Policy:
    """Return the policy at ``path``, by default our own, which has ``channel`` where one is named.

    Raises as ``load_policy`` and ``require_channel`` do.
    """
    policy = load_policy(path)
    if channel is not None:
        require_channel(policy, channel)
    return policy
