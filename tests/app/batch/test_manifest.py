"""The manifest: its rows, and clips that are refused or generated again on resuming."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from typing import Any

import pytest

from app.batch import clips as batch_clips
from app.batch.manifest import read_manifest, write_manifest
from app.errors import CommandError
from tests.support.batches import MUSIC, contents, listed, options, run
from tests.support.scores import two_hands
from tokenization.midi import read_midi, write_midi


def test_the_manifest_lists_the_clips_with_their_settings(quick_model, tmp_path, prompts):
    _, result = run(quick_model, options(tmp_path / "out", prompts))
    rows = listed(tmp_path / "out")
    assert [row["file"] for row in rows] == [
        *(f"midi/first-song_v0{number}.mid" for number in (1, 2, 3)),
        *(f"midi/waltz_v0{number}.mid" for number in (1, 2, 3)),
    ]
    assert [row["seed"] for row in rows] == ["5", "6", "7"] * 2
    prompt = prompts / "waltz.MIDI"
    for row in rows[3:]:
        data = (tmp_path / "out" / row["file"]).read_bytes()
        assert row["midi_sha256"] == hashlib.sha256(data).hexdigest()
        assert (row["audio"], row["audio_sha256"]) == ("", "")
        assert (row["prompt"], row["model"]) == (prompt.as_posix(), "small")
        assert row["backend"] == "quick"
        settings = json.loads(row["settings"])
        assert (settings["temperature"], settings["beats"]) == (1.0, "auto")
        assert settings["drums"] == "none"  # as they were found
        assert settings["prompt_sha256"] == hashlib.sha256(prompt.read_bytes()).hexdigest()
        assert (row["bars"], row["choice"]) == ("2", "")
        before = read_midi(prompt.read_bytes()).num_notes
        assert int(row["notes"]) == read_midi(data).num_notes - before
        assert float(row["seconds"]) == pytest.approx(2 * 3 * 60 / 96, abs=0.01)
    assert result.tokens > 0
    assert result.music_seconds == pytest.approx(sum(float(row["seconds"]) for row in rows), 0.01)
    assert [path.name for path in (tmp_path / "out").rglob(".*")] == [".lock"]
    # seconds in place of bars, and several takes
    music = replace(MUSIC, seconds=3.0, takes=2)
    run(quick_model, options(tmp_path / "b", music=music, count=1))
    (row,) = listed(tmp_path / "b")
    assert re.match(r"take [12] of 2 is most like real music( \(| of those )", row["choice"])
    settings = json.loads(row["settings"])
    assert settings["seconds"] == 3.0
    assert "bars" not in settings


def test_damaged_or_missing_clips_are_made_again(quick_model, tmp_path, prompts):
    output = tmp_path / "out"
    run(quick_model, options(output, prompts))
    before = contents(output)
    (output / "midi" / "waltz_v01.mid").write_bytes(b"MThd")
    (output / "midi" / "waltz_v03.mid").unlink()
    told, result = run(quick_model, options(output, prompts, resume=True))
    assert told == [
        "midi/waltz_v01.mid is damaged; the clip is generated again",
        "midi/waltz_v03.mid is missing; the clip is generated again",
    ]
    assert (result.kept, result.made) == (4, 2)
    assert contents(output) == before


def test_other_settings_are_refused_with_the_first_difference(
    quick_model, tmp_path, prompts, monkeypatch
):
    same = options(tmp_path / "out", prompts, resume=True)
    run(quick_model, same)
    before = contents(tmp_path / "out")
    changes: list[tuple[dict[str, Any], str]] = [
        ({"music": replace(MUSIC, temperature=0.9)}, "temperature 1.0, now 0.9"),
        ({"music": replace(MUSIC, bars=3)}, "bars 2, now 3"),
        ({"music": replace(MUSIC, seed=6)}, "seed 5, now 6"),
        ({"audio": "ogg"}, "audio none, now audio/first-song_v01.ogg"),
        ({"music": replace(MUSIC, beats="grid")}, "beats auto, now grid"),
        ({"count": 2}, "first-song_v03.mid was not requested"),
    ]
    for change, said in changes:
        with pytest.raises(CommandError, match=said):
            run(quick_model, replace(same, **change))
        assert contents(tmp_path / "out") == before
    with pytest.raises(CommandError, match="model sha256 abcd, now 00ff"):
        run(replace(quick_model, sha256="00ff"), same)
    with monkeypatch.context() as patch:
        patch.setattr(batch_clips, "versions", lambda: "relpe 99")
        with pytest.raises(CommandError, match=r"generated with versions relpe .*, now relpe 99"):
            run(quick_model, same)
    rows = read_manifest(manifest := same.place / "manifest.csv")
    older = json.loads(rows["midi/waltz_v01.mid"].settings)
    del older["drums"], older["takes"]
    older_rows = [replace(row, settings=json.dumps(older)) for row in rows.values()]
    write_manifest(manifest, older_rows)
    with pytest.raises(CommandError, match="another version of relpe, without drums, takes; "):
        run(quick_model, same)
    write_manifest(manifest, rows.values())
    (prompts / "first song.mid").write_bytes(write_midi(two_hands(bars=3)))
    with pytest.raises(CommandError, match="prompt sha256 "):
        run(quick_model, same)


def test_a_foreign_manifest_is_refused(tmp_path):
    path = tmp_path / "manifest.csv"
    for content in ("", "a,b\n1,2\n", "\0\xff", "file\n"):
        path.write_text(content, encoding="latin-1")
        with pytest.raises(CommandError, match=r"csv: this is not a manifest of relpe batch"):
            read_manifest(path)
    write_manifest(path, [])
    path.write_text(path.read_text().replace(",backend", ""))
    with pytest.raises(CommandError, match="another version of relpe, without the column backend"):
        read_manifest(path)
