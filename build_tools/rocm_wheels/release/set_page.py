"""Show where a set stands: a page for people, and the summary of a job at GitHub.

Both say the same: what is known of each GPU target, what holds the set, every failure with the names of all
tests that failed, and the command that is next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.core import page_templates, tables
from rocm_wheels.release import verdict_text, wheel_set
from rocm_wheels.release.evidence.evidence import name_subject, summarize_evidence
from rocm_wheels.release.evidence.store import StoredEvidence
from rocm_wheels.release.verdict import Verdict


@dataclass(frozen=True)
class SetPage:
    """A set before a channel. ``next_step`` is a command, "" when there is nothing to do."""

    document: wheel_set.SetDocument
    verdict: Verdict
    evidence: Sequence[StoredEvidence]
    next_step: str

    @property
    def headline(self) -> str:
        """What became of it, in a line."""
        return verdict_text.format_headline(self.verdict)

    def list_targets(self) -> list[tuple[str, str, str]]:
        """Return target, state, and how that was found."""
        return [
            (
                target.gfx,
                target.state,
                "; ".join(filter(None, [" and ".join(target.by), " ".join(target.pythons), target.when])),
            )
            for target in self.verdict.targets
        ]

    def list_rules(self) -> list[tuple[str, str, str]]:
        """Return outcome, rule, and reason; what holds the set comes first."""
        return [
            (rule.outcome, rule.title, verdict_text.describe_rule(rule))
            for rule in self.verdict.rules_by_outcome
        ]

    def list_failures(self) -> list[tuple[str, str, tuple[str, ...]]]:
        """Return results that did not pass, newest first: of what, what came of it, all failed tests."""
        failures = []
        for stored in reversed(self.evidence):
            item = stored.evidence
            if not item.passed:
                what = name_subject(item)
                said = f"{summarize_evidence(item)}{f': {item.detail}' if item.detail else ''}"
                failures.append((what, said, item.failed))
        return failures

    def format_markdown(self) -> str:
        """Return it as Markdown."""
        escape = tables.escape_markdown
        lines = [f"### {escape(self.headline)}", ""]
        if self.list_targets():
            lines += ["| GPU | state | by |", "|---|---|---|"]
            lines += [f"| {' | '.join(map(escape, row))} |" for row in self.list_targets()]
        lines += ["", "| | rule | why |", "|---|---|---|"]
        lines += [f"| {' | '.join(map(escape, row))} |" for row in self.list_rules()]
        for what, said, failed in self.list_failures():
            lines += ["", f"**{escape(what)}**: {escape(said)}"]
            lines += [f"- `{' '.join(name.replace('`', '').splitlines())}`" for name in failed]
        if self.next_step:
            lines += ["", "Next:", tables.fence_markdown(self.next_step).rstrip()]
        return "\n".join([*lines, "", ""])

    def render(self) -> str:
        """Return it as a page. Raises ModuleNotFoundError without what fills templates."""
        document = self.document
        facts = (
            ("State", self.verdict.state),
            ("Family", document.family),
            ("Version", document.version),
            ("ROCm", document.rocm_in_words),
            ("Staged", document.created),
            ("Judged", f"{self.verdict.when:%Y-%m-%d %H:%M} UTC"),
        )
        templates = page_templates.make_page_templates(Path(__file__).with_name("templates"))
        return templates.get_template("set.html").render(
            headline=self.headline,
            facts=facts,
            targets=self.list_targets(),
            rules=self.list_rules(),
            failures=self.list_failures(),
            next_step=self.next_step,
            wheels=[(file.name, tables.format_size(file.size)) for file in document.files],
        )
