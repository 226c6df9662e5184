"""The card of a tuned model: what it learned from, and what it gained and forgot."""

from __future__ import annotations

from dataclasses import dataclass

from training.files import markdown
from training.runs.record import PastRun
from training.tuning.measure import MOST_TOKENS, Nats

_LISTED = 12
"""Held-back pieces that are named."""


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """What the card says of a tuned model."""

    name: str
    base: str
    """Name of the model that was tuned."""
    method: str
    learning_rate: float
    learned: int
    """Pieces to learn."""
    learned_notes: int
    held_back: tuple[str, ...]
    """Names of the pieces that were held back."""
    shares_melodies: bool
    """Whether melodies of the held-back pieces are also in pieces to learn."""
    held_notes: int
    """Notes of the held-back pieces that are measured."""
    before: Nats
    after: Nats
    original_before: Nats | None
    """On validation music of the model that was tuned; None: not measured."""
    original_after: Nats | None
    steps: int
    """Steps of the weights that were kept."""
    all_steps: int
    """Steps until tuning ended."""
    minutes: float

    @property
    def gain(self) -> float:
        """Share of the nats per note of the held-back pieces that tuning saved."""
        return 1 - self.after.decoder / self.before.decoder

    def line(self) -> str:
        """Return the result in one line."""
        return (
            f"{self.before.decoder:.3f} nats per note before, {self.after.decoder:.3f} after "
            f"({self.gain:.1%} fewer) on {_counted(len(self.held_back))} held back, step "
            f"{self.steps:,} of {self.all_steps:,}, {self.minutes:.1f} minutes"
        )


def card(tuned: Tuned, run: PastRun) -> str:
    """Return the README.md of a tuned model."""
    names = [f"`{name.rpartition('/')[2]}`" for name in tuned.held_back[:_LISTED]]
    more = ", …" if len(tuned.held_back) > _LISTED else ""
    [segment] = run.sessions
    rows = [("pieces", "", "before", "after", "change")]
    rows += _rows(f"held back, {tuned.held_notes:,} notes", tuned.before, tuned.after)
    if tuned.original_before is not None and tuned.original_after is not None:
        name = f"validation music of `{tuned.base}`"
        rows += _rows(name, tuned.original_before, tuned.original_after)
    lines = [
        f"# {tuned.name}",
        "",
        f"The model `{tuned.base}`, tuned by `relpe-train tune` ({tuned.method}, learning rate "
        f"{tuned.learning_rate:g}, {tuned.steps:,} steps).",
        "",
        f"- Data: {_counted(tuned.learned)} with {tuned.learned_notes:,} notes "
        f"(SHA-256 of all tokens: `{(run.data or '')[:16]}`). The licence of these pieces is not "
        "known; find out whether you may share the model.",
        f"- Held back: {_counted(len(tuned.held_back))}, {', '.join(names)}{more}.",
        f"- Command: `{segment.command}`",
        f"- Commit: {segment.commit or 'unknown'}",
        f"- Machine: {segment.machine}, {run.threads} threads, {run.precision}; torch "
        f"{segment.torch}; {tuned.minutes:.1f} minutes.",
        "",
        "## Measured",
        "",
        "Nats per note; fewer is better. Each piece is read from its beginning, up to "
        f"{MOST_TOKENS:,} tokens in all. `with pointer` is what generation uses.",
        "",
        *markdown(rows),
        "",
        "The weights were chosen by the held-back pieces, so that their figure is slightly too "
        "good.",
    ]
    if tuned.shares_melodies:
        lines.append(
            "Most of the pieces share melodies, so that the held-back pieces resemble the others; "
            "the gain on new pieces is smaller."
        )
    if tuned.original_before is None:
        lines.append(
            f"How much of the music of `{tuned.base}` was forgotten was not measured, since its "
            "validation music is not part of the model; `--original` measures it on a prepared "
            "corpus."
        )
    return "\n".join([*lines, ""])


def _counted(pieces: int) -> str:
    return f"{pieces:,} piece{'s' * (pieces != 1)}"


def _rows(name: str, before: Nats, after: Nats) -> list[tuple[str, ...]]:
    pairs = {"without pointer": (before.decoder, after.decoder)}
    if before.mixture is not None and after.mixture is not None:
        pairs["with pointer"] = before.mixture, after.mixture
    return [
        (name, how, f"{old:.3f}", f"{new:.3f}", f"{new / old - 1:+.1%}")
        for how, (old, new) in pairs.items()
    ]
