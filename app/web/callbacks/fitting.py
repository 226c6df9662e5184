"""The model that works on an upload, with the bars and tracks that are chosen in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.errors import input_errors
from app.player.frames import Frame
from app.server.downloads import SOUND_KINDS
from app.server.job import prompt_files
from app.web.cards import said, sentence
from app.web.session import AUTOMATIC, Step, Workspace
from tokenization.errors import MidiError

if TYPE_CHECKING:
    from app.compose.fill.passage import Passage
    from app.compose.models import Models
    from app.server.uploads import Upload
    from tokenization.score import Score

NO_TRACK = "Choose Write for at least one track, or the instrument of a new track."
TRACKS_ANEW = (
    "The tracks that you chose cannot be continued with these settings: all are selected again."
)


def shown(upload: Upload, job: str) -> Frame:
    """Return the frame of an upload, with the id of the job that plays it."""
    frame = upload.frame() | Frame(job=job)
    if "prompt" not in frame:
        return frame
    prompt = frame["prompt"].copy()
    prompt["files"] = [*prompt_files(upload), *SOUND_KINDS]
    return frame | Frame(prompt=prompt)


def for_model(models: Models, upload: Upload, name: str, style: str = "") -> Upload:
    """Return the whole file for the model of this name, or for the automatic choice."""
    score = upload.whole.score
    model = models.to_continue(score, style) if name == AUTOMATIC else models.load(name)
    return upload if model is upload.model else upload.for_model(model)


def with_drums(models: Models, upload: Upload, score: Score, name: str, style: str = "") -> Upload:
    """Return the file with a score of other drums, for the model of this name or automatically."""
    model = models.to_continue(score, style) if name == AUTOMATIC else models.load(name)
    return upload.with_drums(score, model)


def to_write(
    models: Models, upload: Upload, name: str, passage: Passage, style: str = ""
) -> Upload:
    """Return the file with a passage to be written, or with the reason why it cannot be.

    The model is that of this name. By default, it is the one that continues the file, or another
    one if only that one can write these tracks. The new notes end at the last bar line.
    """
    try:
        upload = for_model(models, upload, name, style)
        if passage.tracks is not None and not passage.tracks and passage.instrument is None:
            return upload.unable(passage, NO_TRACK)
        if name != AUTOMATIC:
            return upload.writing(passage)
        return upload.writing_by_any(passage, models, style)
    except input_errors() as error:
        text = str(error).removeprefix(f"{upload.whole.name}: ")
        return upload.unable(passage, sentence(text))


def fitted(models: Models, step: Step, style: str) -> tuple[Step, str]:
    """Return a step with its upload for its model, or for the automatic choice, and a note.

    Raises MidiError if the model cannot continue it.
    """
    upload = step.upload
    if upload is None:
        return step, ""
    if upload.passage is not None:
        passage = upload.passage
        return step._replace(upload=to_write(models, upload, step.model, passage, style)), ""
    first, last = upload.prompt.first_bar, upload.bars
    other = for_model(models, upload, step.model, style)
    return (step, "") if other is upload else with_tracks(step, other, first, last)


def fit(models: Models, work: Workspace) -> None:
    """Take the automatic choice for what is needed. Raises MidiError if it cannot continue."""
    if work.upload is None or work.model != AUTOMATIC:
        return
    step, note = fitted(models, work.step, work.asked_style)
    if step.upload is not None and work.frame.get("phase") == "prompt":
        step = step._replace(frame=shown(step.upload, work.frame.get("job", "")))
    work.set(step)
    if note:
        work.note = said(note)


def with_tracks(step: Step, upload: Upload, first: int | None, last: int) -> tuple[Step, str]:
    """Return a step with an upload read in another way, keeping the chosen tracks, and a note.

    If these tracks cannot be continued now, all are chosen and the note says so.
    """
    try:
        part = upload.choose(first, last, step.heard, step.played)
        return step._replace(upload=part), ""
    except MidiError:
        if step.heard is None and step.played is None:
            raise
    part = upload.choose(first, last, None, None)
    return step._replace(upload=part, heard=None, played=None), TRACKS_ANEW
