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
    """The clips to make, and where they go.

    Raises CommandError if the last clip would exceed the largest seed.
    """

    output: Path
    music: MusicOptions
    """Options of each clip, with the seed of the first clip of each prompt."""
    prompts: tuple[Path, ...] = ()
    """Files and folders; empty for pieces without a prompt."""
    models: tuple[str, ...] = ()
    """Names; if empty, any released model, and the first one for pieces without a prompt."""
    count: int = 4
    """Clips of each prompt; without prompts, of each model."""
    beats: BeatSource = "file"
    max_file_size: int = MAX_FILE_BYTES
    audio: AudioFormat | None = None
    width: int = 32
    """Clips generated at once; the music does not depend on it."""
    resume: bool = False

    def __post_init__(self) -> None:
        if (self.music.seed or 0) + self.count - 1 > LARGEST_SEED:
            raise CommandError(
                f"--seed {self.music.seed}: {self.count} clips count up from it beyond the largest "
                f"seed, {LARGEST_SEED}; choose a smaller one"
            )


class Source(NamedTuple):
    """The origin of clips: a prompt and a model, or a model alone."""

    name: str
    """The beginning of the file names of its clips, before `_v` and their number."""
    model: str
    path: Path | None = None
    sha256: str = ""
    """Of the prompt's file."""

    @property
    def said(self) -> str:
        """The prompt's path as it was given, as printable text."""
        return printable(self.path) if self.path else ""


class Clip(NamedTuple):
    """A clip of a source."""

    source: Source
    number: int
    """From 1."""
    seed: int

    @property
    def name(self) -> str:
        """Of the files, without suffix."""
        return f"{self.source.name}_v{self.number:02d}"


def printable(path: Path) -> str:
    """A path as text, with replacement characters for bytes that are not UTF-8."""
    return os.fsencode(path.as_posix()).decode("utf-8", "replace")


def unique_names(wanted: Iterable[str]) -> list[str]:
    """File names that differ even if case is ignored: the second of a name ends in `-2`."""
    taken: set[str] = set()
    names: list[str] = []
    for base in map(safe_name, wanted):
        numbered = (f"{base}-{number}" for number in itertools.count(2))
        tries = itertools.chain([base], numbered)
        names.append(next(name for name in tries if name.casefold() not in taken))
        taken.add(names[-1].casefold())
    return names


def prompts_by_name(options: BatchOptions) -> dict[str, Path]:
    """All prompts, by the names of their clips; the same prompts get the same names."""
    found = find_midi(options.prompts, options.output / "midi")
    return dict(zip(unique_names(found.values()), found, strict=True))


def source_of(options: BatchOptions, models: Models, name: str, path: Path) -> Source:
    """The source of a prompt, which is read to check that it can be continued.

    Raises:
        MidiError, TokenizerError, SoundError, CommandError: it cannot be continued; the message
            names it.
    """
    data = read_file(path, options.max_file_size)
    score = read_midi(data, name=printable(path))
    model = models.to_continue(score)
    source = Source(name, model.name, path, hashlib.sha256(data).hexdigest())
    _opening(options, source, model, data, score)
    return source


def opening_of(options: BatchOptions, source: Source, model: MusicModel) -> Opening:
    """Opening of the clips of a source.

    Raises the errors of `source_of`, and a MidiError if the file has changed.
    """
    if source.path is None:
        return Opening.of_nothing(model, options.music)
    data = read_file(source.path, options.max_file_size)
    if hashlib.sha256(data).hexdigest() != source.sha256:
        raise MidiError(f"{source.said}: the file has changed since it was looked at")
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
    """All clips of a source; every source has the same seeds, counting up from the first."""
    first = options.music.seed or 0
    return [Clip(source, number + 1, first + number) for number in range(options.count)]


def planned_row(options: BatchOptions, clip: Clip, model: MusicModel) -> Row:
    """The row of the manifest for a clip before it is made."""
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
