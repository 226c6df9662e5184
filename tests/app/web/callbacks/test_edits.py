"""Edits of the piece on the page, without a browser."""

from __future__ import annotations

from app.web.callbacks.alerts import BUSY
from app.web.callbacks.uploads import GONE
from tests.support.seen import SOMEONE, begin, event, make, read, seen, work_of
from tokenization.midi import read_midi


def edit(calls, **values):
    return seen(calls.uploads.edit(event(**values), SOMEONE))


def piece(calls, variation=-1):
    """The notes of the shown piece, as it is downloaded."""
    frame = work_of(calls).frame
    path = calls.studio.file(frame["job"], variation, "midi")
    return [track.notes.tolist() for track in read_midi(path.read_bytes()).tracks]


def first_note(frame):
    """Track, onset and pitch of the first note that the player shows."""
    track = frame["prompt"]["tracks"][0]
    onset, _, pitch, _ = map(int, track["notes"].split(";")[0].split(","))
    return [track["id"], onset, pitch]


def test_edits_of_the_prompt_are_steps_that_are_undone_one_by_one(calls, band):
    view, _ = read(calls, band)
    steps = [piece(calls)]
    jobs = [view.frame["job"]]
    for values in (
        {"moved": [[*first_note(view.frame), 96, 2, 24]]},
        {"removed": [[*first_note(view.frame)[:1], 384, 61]]},
        {"semitones": -3},
    ):
        view = edit(calls, variation=-1, **values)
        assert (view.frame["phase"], view.frame.get("alert", "")) == ("prompt", "")
        assert piece(calls) not in steps
        steps.append(piece(calls))
        jobs.append(view.frame["job"])
    assert len(set(jobs)) == 4
    for before, job in zip(steps[-2::-1], jobs[-2::-1], strict=True):
        view = seen(calls.history.undo(SOMEONE))
        assert view.frame["job"] == job
        assert piece(calls) == before


def test_what_follows_an_edited_result_continues_it(calls, midi):
    read(calls, midi)
    make(calls, variations=2)
    made = piece(calls, 1)
    view = edit(calls, variation=1, semitones=2, tempo=1.5)
    assert view.frame["phase"] == "prompt"
    assert view.go.value == "Continue"
    higher = [[[o, d, p + 2, v] for o, d, p, v in track] for track in made]
    assert piece(calls) == higher
    assert "144 bpm" in view.card  # the file has 96
    assert len(calls.view.session(SOMEONE).results) == 1  # the unchanged one is still listed
    make(calls)
    continued = [note for track in piece(calls, 0) for note in track]
    assert all(note in continued for track in higher for note in track)


def test_chosen_bars_and_tracks_are_kept_when_notes_are_edited(calls, band):
    view, _ = read(calls, band)
    calls.uploads.choose_region(event(first=2, last=3), SOMEONE)
    calls.uploads.choose_tracks(event(heard=[0, 1], played=[1]), SOMEONE)
    view = edit(calls, variation=-1, moved=[[*first_note(view.frame), 0, 1, 0]])
    upload = work_of(calls).upload
    assert (upload.prompt.first_bar, upload.bars) == (2, 3)
    assert [track["heard"] for track in view.frame["prompt"]["tracks"]] == [True, True, False]


def test_an_edit_that_is_impossible_says_why_and_a_malformed_one_changes_nothing(calls, midi):
    view, upload = read(calls, midi)
    for values, alert in (
        ({}, None),
        ({"semitones": "x", "variation": -1}, None),
        ({"removed": [[0]], "variation": -1}, None),
        ({"moved": [[9, 0, 60, 0, 0, 0]]}, "An edited note does not exist; select it again."),
    ):
        after = edit(calls, **values).frame
        assert (after["job"], after.get("alert")) == (view.frame["job"], alert)
        assert after["prompt"] == view.frame["prompt"]
        assert work_of(calls).upload is upload
    view = edit(calls, variation=-1, semitones=1)
    assert view.frame["prompt"]["files"][0] == "midi"
    for kind in ("midi", "ogg"):
        answer = calls.files.file({"job": view.frame["job"], "variation": -1, "kind": kind})
        assert answer["path"].endswith(f"My-prompt.{kind.replace('midi', 'mid')}"), answer


def test_nothing_is_edited_while_music_is_made_or_when_its_files_are_gone(calls, midi):
    read(calls, midi)
    begin(calls)
    assert edit(calls, variation=-1, semitones=1).frame["alert"] == BUSY
    list(calls.jobs.compose(SOMEONE))
    calls.jobs.end(SOMEONE)
    calls.studio.kept._jobs.clear()
    assert edit(calls, variation=0, semitones=1).frame["alert"] == GONE
