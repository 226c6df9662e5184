"""How music is made: what page, commands and scripts can choose. Loads no engine."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

LARGEST_SEED = 2**31 - 1

BeatSource = Literal["file", "estimate", "grid"]
"""Where the beats of a prompt come from: its file, its notes, or a clock of 120 beats a minute."""


def _option(default: Any, least: float, most: float | None, text: str) -> Any:  # noqa: ANN401
    return field(default=default, metadata={"least": least, "most": most, "help": text})


@dataclass(frozen=True, kw_only=True)
class MusicOptions:
    """How music is made: the same defaults for page, commands and other callers.

    Raises ValueError for a value out of its range.
    """

    bars: int = _option(16, 1, 4096, "bars of new music, as the prompt writes them")
    prompt_bars: int | None = _option(
        None,
        1,
        None,
        "bars of the prompt's end that the model hears; as many as 16,384 tokens hold where not "
        "given",
    )
    seed: int | None = _option(
        None,
        0,
        LARGEST_SEED,
        "seed of the draws; a random one, which the result names, where not given",
    )
    temperature: float = _option(1.0, 0.01, 10, "below 1 safer, above 1 wilder")
    top_p: float = _option(
        0.95, 0, 1, "draw from the likeliest tokens that hold this share of probability"
    )
    variations: int = _option(
        1, 1, 64, "pieces made at once, with seeds that count up from the first"
    )

    def __post_init__(self) -> None:
        for option in fields(self):
            value = getattr(self, option.name)
            least, most = option.metadata["least"], option.metadata["most"]
            if value is not None and not (least <= value and (most is None or value <= most)):
                limits = f"at least {least}" if most is None else f"{least} to {most}"
                name = option.name.replace("_", " ")
                raise ValueError(f"{name} is {value}, expected {limits}")


def with_seed(options: MusicOptions) -> MusicOptions:
    """The same options with a seed: a random one where there is none."""
    if options.seed is not None:
        return options
    return replace(options, seed=secrets.randbelow(LARGEST_SEED - options.variations))
