"""The configuration of a listening study: conditions, prompts and repetitions in one YAML file."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from app.audio.loudness import LOUDNESS_LUFS
from app.batch.clips import BatchOptions, Condition, Study
from app.batch.excerpt import ClipKind
from app.batch.listening import ListeningConfig
from app.compose.options import OPTIONS, STUDYING, BeatSource, MusicOptions
from app.errors import CommandError
from relpe.models.checkpoint import CheckpointError, find_checkpoint, released_model
from relpe.models.config import from_plain, to_plain

_OF_STUDY = ("bars", "seconds", "seed", "variations", "beats")
"""Music options that are the same in all conditions."""


@dataclass(frozen=True, kw_only=True)
class PromptConfig:
    """A prompt whose last bar differs from that of the others."""

    file: Path
    """A MIDI file, or JSON of the MIREX task."""
    last_bar: int
    """The last bar of the prompt, from 1."""

    def __post_init__(self) -> None:
        _check("last_bar", self.last_bar, 1)


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A model that generates continuations."""

    kind: Literal["model"] = "model"
    name: str
    """Name of the condition in key.csv."""
    model: str
    """Folder of a model, relative to the file of the study, or name of a released model."""
    options: Any = None
    """Music options other than length, seed and beats, such as `{temperature: 0.9}`."""

    def __post_init__(self) -> None:
        options = {} if self.options is None else self.options
        object.__setattr__(self, "options", options)
        if not isinstance(options, dict):
            raise ValueError(f"options are {options!r}, expected a section")
        names = [name for name in OPTIONS if name not in (*_OF_STUDY, *STUDYING)]
        for name in options:
            if name in _OF_STUDY:
                raise ValueError(
                    f"options.{name}: all conditions have the same length and beats, and derived "
                    "seeds; set bars and beats for the whole study"
                )
            if name not in names:
                raise ValueError(f"options.{name}: unknown, expected one of {', '.join(names)}")
        self.music(MusicOptions())

    def place(self, folder: Path) -> str | Path:
        """Return the model as folder, or its name if there is none.

        `folder` is that of the study.
        """
        beside = (folder / self.model).absolute()
        if "/" in self.model or (beside / "model.json").is_file():
            return beside
        return released_model(self.model) or self.model

    def music(self, shared: MusicOptions) -> MusicOptions:
        """Return the options, with those that all share. Raises ValueError for a wrong value."""
        common = {name: getattr(shared, name) for name in _OF_STUDY}
        return from_plain(MusicOptions, {**common, **self.options}, "options")


@dataclass(frozen=True, kw_only=True)
class RealConfig:
    """The real continuation: the bars of the prompt's file after the prompt."""

    kind: Literal["real"] = "real"
    name: str = "real"
    """Name of the condition in key.csv."""


@dataclass(frozen=True, kw_only=True)
class ShuffledBarsConfig:
    """A low anchor: the bars of the real continuation in another order."""

    kind: Literal["shuffled_bars"] = "shuffled_bars"
    name: str = "shuffled bars"
    """Name of the condition in key.csv."""


@dataclass(frozen=True, kw_only=True)
class ShuffledNotesConfig:
    """A low anchor: the real continuation, with the pitches of each track in another order."""

    kind: Literal["shuffled_notes"] = "shuffled_notes"
    name: str = "shuffled notes"
    """Name of the condition in key.csv."""


@dataclass(frozen=True, kw_only=True)
class StudyConfig:
    """A listening study: every condition continues every prompt, `repetitions` times."""

    name: str
    """Title of the study."""
    conditions: tuple[ModelConfig | RealConfig | ShuffledBarsConfig | ShuffledNotesConfig, ...]
    """What is compared; `kind` is model, real, shuffled_bars or shuffled_notes."""
    prompts: tuple[PromptConfig | Path, ...] = ()
    """MIDI files, folders, or JSON of the MIREX task, relative to the file of the study; without
    prompts, pieces are generated from nothing."""
    last_bar: int | None = None
    """The last bar of each prompt, from 1; later bars are cut off, and the bars after it are the
    real continuation. None: the whole file is the prompt."""
    bars: int = 8
    """Bars of new music, in all conditions."""
    repetitions: int = 1
    """Clips of each prompt and condition; there is always one real continuation."""
    seed: int = 0
    """All seeds and blind names are derived from it and from `name`; keep it from the listeners."""
    beats: BeatSource = "auto"
    """Source of the bars and beats of prompts: auto, file, estimate or grid."""
    clip: ClipKind = "tail"
    """What a clip contains: tail, the last `clip_bars` bars of the prompt and the new music; new,
    only the new music; or whole, the whole prompt and the new music."""
    clip_bars: int = 4
    """Bars of the prompt in a clip of the kind `tail`."""
    audio: Literal["wav", "flac"] | None = "wav"
    """Format of the stimuli; webMUSHRA needs wav. None: only MIDI."""
    soundfont: Path | None = None
    """SoundFont of the stimuli, relative to the file of the study. None: a General MIDI one."""
    loudness: float = LOUDNESS_LUFS
    """Loudness of the stimuli in LUFS. If the true peak of one would exceed -1 dB, all stimuli of
    its prompt are as much lower as it has to be."""
    question: str = "How good is this music?"
    """The question in webmushra.yaml, answered from 1 (bad) to 5 (excellent)."""
    listening: ListeningConfig = field(default_factory=ListeningConfig)
    """Settings of the rating page of `relpe listen`; they do not affect the clips."""

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise ValueError("name is empty, expected the title of the study")
        if not self.conditions:
            raise ValueError("conditions are empty, expected at least one")
        counts = Counter(condition.name for condition in self.conditions)
        for name, count in counts.items():
            if count > 1 or not name.strip():
                problem = "a name is empty"
                if count > 1:
                    problem = f"{count} conditions are named {name!r}"
                raise ValueError(f"conditions: {problem}, expected a different name for each")
        _check("last_bar", self.last_bar, 1)
        _check("bars", self.bars, 1, 4096)
        _check("repetitions", self.repetitions, 1, 1000)
        _check("seed", self.seed, 0)
        _check("clip_bars", self.clip_bars, 1, 4096)
        _check("loudness", self.loudness, -70, -10)
        real = next((one for one in self.conditions if one.kind != "model"), None)
        if real is not None and not self.prompts:
            raise ValueError(
                f"prompts are empty, but the condition {real.name!r} needs the bars that follow a "
                "prompt in its file"
            )


def _check(name: str, value: float | None, least: float, most: float = math.inf) -> None:
    if value is not None and not least <= value <= most:
        expected = f"at least {least}" if most == math.inf else f"{least} to {most}"
        raise ValueError(f"{name} is {value}, expected {expected}")


def read_study(path: Path) -> StudyConfig:
    """Read the configuration of a study.

    Raises CommandError, in one sentence, if the file is not YAML, a key is unknown or missing, or a
    value is not as expected.
    """
    try:
        values = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}; choose another file") from error
    except (yaml.YAMLError, ValueError) as error:
        problem = " ".join(str(error).split())
        raise CommandError(f"{path}: this is not YAML ({problem}); correct it") from error
    if not isinstance(values, dict):
        raise CommandError(f"{path}: found no study, expected name, conditions and prompts")
    try:
        return from_plain(StudyConfig, values, "study")
    except CheckpointError as error:
        raise CommandError(f"{path}: {error}") from error


def as_yaml(study: StudyConfig) -> str:
    """Return the configuration with all defaults."""
    return yaml.safe_dump(to_plain(study), sort_keys=False, allow_unicode=True, width=100)


def models_of(study: StudyConfig, folder: Path) -> tuple[str, ...]:
    """Return the models of a study, as names or folders; `folder` is that of its file."""
    models = [one for one in study.conditions if isinstance(one, ModelConfig)]
    return tuple(dict.fromkeys(str(one.place(folder)) for one in models))


def options_of(
    study: StudyConfig,
    folder: Path,
    output: Path,
    *,
    loaded: Collection[str] = (),
    **others: Any,  # noqa: ANN401
) -> BatchOptions:
    """Return the clips of a study.

    Args:
        study: the configuration.
        folder: folder of its file, to which paths are relative.
        output: the folder to write to.
        loaded: names of models that need not be looked for.
        others: fields of `BatchOptions` that do not affect the clips.

    Raises:
        CommandError: there is no such model.
    """
    music = MusicOptions(bars=study.bars, beats=study.beats)
    conditions: list[Condition] = []
    for one in study.conditions:
        if isinstance(one, ModelConfig):
            try:
                model = one.model
                if model not in loaded:
                    model = find_checkpoint(one.place(folder)).resolve().name
            except CheckpointError as error:
                raise CommandError(f"the condition {one.name!r}: {error}") from error
            conditions.append(Condition(one.name, one.music(music), "model", model))
        else:
            conditions.append(Condition(one.name, music, one.kind))
    last_bars: dict[Path, int] = {}
    prompts: list[Path] = []
    for prompt in study.prompts:
        has_options = isinstance(prompt, PromptConfig)
        prompts.append(folder / (prompt.file if has_options else prompt))
        last_bar = prompt.last_bar if has_options else study.last_bar
        if last_bar is not None:
            last_bars[prompts[-1]] = last_bar
    return BatchOptions(
        output=output,
        folder=folder,
        music=music,
        prompts=tuple(prompts),
        last_bars=last_bars,
        conditions=tuple(conditions),
        study=Study(study.name, study.seed, study.question, as_yaml(study)),
        count=study.repetitions,
        clip=study.clip,
        clip_bars=study.clip_bars,
        audio=study.audio,
        soundfont=study.soundfont and folder / study.soundfont,
        loudness=study.loudness,
        **others,
    )
