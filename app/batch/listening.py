"""The settings of the rating page, a section of the configuration of a study."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

Question = Literal["coherence", "structure", "creativity", "musicality"]
_MOST = 1000


@dataclass(frozen=True, kw_only=True)
class ListeningConfig:
    """A listening test on the clips of a study: what each listener does."""

    ratings: int = 10
    """Clips that each listener rates: combinations of prompt and condition, or all if there are
    fewer. 0: no ratings."""
    preferences: int = 10
    """Pairs of clips of one prompt of which each listener chooses one: combinations of prompt and
    two conditions, or all if there are fewer. 0: no pairs."""
    questions: tuple[Question, ...] = get_args(Question)
    """The questions about a rated clip: coherence, structure, creativity and musicality."""
    training: int = 1
    """Practice trials before the ratings and before the pairs."""
    attention: int = 2
    """Attention trials of each listener: three tones interrupt a clip, which must then be rated 1,
    or not be chosen."""
    repeated: int = 2
    """Earlier trials that each listener does again; in pairs, A and B are exchanged."""
    heard: float = 0.9
    """Part of each clip that must have been played before it can be judged."""
    welcome: str | None = None
    """Text on the first page; empty lines separate paragraphs. None: a general text."""
    consent: str | None = None
    """Text to which listeners agree before they begin, like `welcome`. None: a general text."""
    completion_code: str | None = None
    """Code that is shown at the end. None: a random one for each listener, in listeners.csv."""
    completion_link: str | None = None
    """Address to which the last page leads. `{completion_code}` in it is the code; other names in
    braces, such as `{PROLIFIC_PID}`, are taken from the address with which the listener came."""

    def __post_init__(self) -> None:
        for name in ("ratings", "preferences", "training", "attention", "repeated"):
            if not 0 <= getattr(self, name) <= _MOST:
                value = getattr(self, name)
                raise ValueError(f"{name} is {value}, expected 0 to {_MOST}")
        if not self.ratings and not self.preferences:
            raise ValueError("ratings and preferences are 0, expected at least one trial")
        if not self.questions or len(set(self.questions)) < len(self.questions):
            expected = ", ".join(get_args(Question))
            raise ValueError(f"questions: expected each of {expected} at most once, at least one")
        if not 0 < self.heard <= 1:
            raise ValueError(f"heard is {self.heard}, expected a part above 0, at most 1")
        if self.completion_link is not None and not re.match(
            r"https?://\S+$", self.completion_link
        ):
            raise ValueError(
                f"completion_link is {self.completion_link!r}, expected an address such as "
                "https://survey.example/end?id={PROLIFIC_PID}"
            )
