"""Plans the clips of a batch: their prompts, models, seeds and names."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from app.audio.formats import AudioFormat
from app.batch.manifest import Row
from app.compose.options import LARGEST_SEED, MAX_FILE_BYTES, BeatSource, MusicOptions
from app.compose.piece import Opening
from app.compose.prompt import read_prompt
from app.compose.replay import chosen_options, versions
from app.errors import CommandError
from app.files import find_midi, read_file, safe_name
from tokenization.errors import MidiError
from tokenization.midi import read_midi

if TYPE_CHECKING:
    from collections.abc import Iterable

    from app.compose.models import Models, MusicModel
    from tokenization.score import Score


@dataclass(frozen=True, kw_only=True)
class BatchOptions:
    """The clips to generate and the folder to write them to.

    Raises CommandError if the seed of the last clip would be too large.
    """

    output: Path
    music: MusicOptions
    """Options of each clip; the seed is that of the first clip of each prompt."""
    prompts: tuple[Path, ...] = ()
    """Files and folders; if empty, pieces are generated from nothing."""
    models: tuple[str, ...] = ()
    """Names; if empty, all released models, or only the first one if there are no prompts."""
    count: int = 4
    """Clips per prompt or, without prompts, per model."""
    beats: BeatSource = "auto"
    strict: bool = False
    """Whether damaged prompts are refused."""
    max_file_size: int = MAX_FILE_BYTES
    audio: AudioFormat | None = None
    width: int = 32
    """Number of clips generated at once; does not affect the music."""
    resume: bool = False

    def __post_init__(self) -> None:
        if (self.music.seed or 0) + self.count - 1 > LARGEST_SEED:
            raise CommandError(
                f"--seed {self.music.seed}: the seed of the last of {self.count} clips would "
                f"exceed the largest seed, {LARGEST_SEED}; choose a smaller --seed"
            )


class Source(NamedTuple):
    """The origin of clips: a prompt and a model, or only a model."""

    name: str
    """Start of the file names of its clips, before `_v` and a number."""
    model: str
    path: Path | None = None
    sha256: str = ""
    """Hash of the prompt's file."""

    @property
    def said(self) -> str:
        """The prompt's path as given, as printable text."""
        return printable(self.path) if self.path else ""


class Clip(NamedTuple):
    """A clip of a source."""

    source: Source
    number: int
    """From 1."""
    seed: int

    @property
    def name(self) -> str:
        """Name of its files, without suffix."""
        return f"{self.source.name}_v{self.number:02d}"


def printable(path: Path) -> str:
    """A path as text, with replacement characters for bytes that are not UTF-8."""
    return os.fsencode(path.as_posix()).decode("utf-8", "replace")


def unique_names(wanted: Iterable[str]) -> list[str]:
    """File names that differ even when case is ignored; a repeated name gets the suffix `-2`."""
    taken: set[str] = set()
    names: list[str] = []
    for base in map(safe_name, wanted):
        numbered = (f"{base}-{number}" for number in itertools.count(2))
        tries = itertools.chain([base], numbered)
        names.append(next(name for name in tries if name.casefold() not in taken))
        taken.add(names[-1].casefold())
    return names


def prompts_by_name(options: BatchOptions) -> dict[str, Path]:
    """All prompts, keyed by the names of their sources; the names depend only on the prompts."""
    found = find_midi(options.prompts, options.output / "midi")
    return dict(zip(unique_names(found.values()), found, strict=True))


def source_of(options: BatchOptions, models: Models, name: str, path: Path) -> Source:
    """The source of clips for a prompt; checks that the prompt can be continued.

    Raises:
        MidiError, TokenizerError, SoundError, CommandError: the prompt cannot be continued.
    """
    data = read_file(path, options.max_file_size)
    score = read_midi(data, name=printable(path), strict=options.strict)
    model = models.to_continue(score)
    source = Source(name, model.name, path, hashlib.sha256(data).hexdigest())
    _opening(options, source, model, data, score)
    return source


def opening_of(options: BatchOptions, source: Source, model: MusicModel) -> Opening:
    """The opening of all clips of a source.

    Raises the errors of `source_of`, and MidiError if the file has changed since then.
    """
    if source.path is None:
        return Opening.of_nothing(model, options.music)
    data = read_file(source.path, options.max_file_size)
    if hashlib.sha256(data).hexdigest() != source.sha256:
        raise MidiError(f"{source.said}: the file has changed since it was checked")
    return _opening(options, source, model, data)


def _opening(
    options: BatchOptions,
    source: Source,
    model: MusicModel,
    data: bytes,
    score: Score | None = None,
) -> Opening:
    prompt = read_prompt(
        data, source.said, tokenizer=model.tokenizer, beats=options.beats, score=score
    )
    opening = Opening.after(model, prompt, options.music)
    if options.audio and opening.bars is not None:
        from app.audio.render import check_length  # takes two seconds to import

        check_length(float(prompt.score.seconds_at(opening.bars.end_ticks)))
    return opening


def clips_of(options: BatchOptions, source: Source) -> list[Clip]:
    """All clips of a source; each source has the same consecutive seeds."""
    first = options.music.seed or 0
    return [Clip(source, number + 1, first + number) for number in range(options.count)]


def planned_row(options: BatchOptions, clip: Clip, model: MusicModel) -> Row:
    """The row of the manifest for a clip, before it is generated."""
    source = clip.source
    settings = chosen_options(options.music, after_prompt=source.path is not None)
    del settings["variations"]
    settings |= {"device": model.device.type, "versions": versions()}
    if source.path is not None:
        settings |= {"beats": options.beats, "prompt_sha256": source.sha256}
    return Row(
        file=f"midi/{clip.name}.mid",
        audio=f"audio/{clip.name}.{options.audio}" if options.audio else "",
        prompt=source.said,
        model=model.name,
        model_sha256=model.sha256,
        backend=model.backend,
        seed=str(clip.seed),
        settings=json.dumps(settings, sort_keys=True),
    )
