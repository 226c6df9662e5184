import io
import shutil
import subprocess
import sys

import numpy as np
import pytest
import soundfile

from app.errors import CommandError
from app.listening.page.clips import TONE_HERTZ, TONES_AT, read_material, with_tones
from tests.support.listening import CONDITIONS, RATE, study_folder
from tests.support.paths import ROOT


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return study_folder(tmp_path_factory.mktemp("study") / "a", seconds=6.0)


def test_a_study_is_read_with_its_conditions_and_its_prompts_or_else_repetitions(folder, tmp_path):
    material = read_material(folder)
    assert material.conditions == CONDITIONS
    assert material.items == ("a.mid", "b.mid")
    assert len(material.rows) == 8
    assert material.clip(2, 1, 5).condition == "real"
    copy = shutil.copytree(folder, tmp_path / "copy")
    key, manifest = copy / "key.csv", copy / "manifest.csv"
    lines = [line.split(",") for line in key.read_text().splitlines()]
    for row in lines[1:]:
        row[lines[0].index("repetition")] = "1" if "/a" in row[0] else "2"
    key.write_text("\n".join(",".join(row) for row in lines) + "\n")
    manifest.write_text(manifest.read_text().replace("a.mid,", ",").replace("b.mid,", ","))
    assert len(read_material(copy).items) == 2


def test_tones_interrupt_the_music(folder):
    before, _ = soundfile.read(folder / "stimuli" / "a01.wav")
    after, rate = soundfile.read(io.BytesIO(with_tones(folder / "stimuli" / "a01.wav")))
    assert (rate, len(after)) == (RATE, len(before))
    begin = int(TONES_AT * len(before))
    unchanged = slice(0, begin - RATE // 50)
    assert np.abs(after[unchanged] - before[unchanged]).max() < 2e-4

    def loudest(samples):
        return np.argmax(np.abs(np.fft.rfft(samples))) * rate / len(samples)

    assert loudest(before[begin : begin + 2 * RATE]) == pytest.approx(220, abs=2)
    assert loudest(after[begin : begin + 2 * RATE]) == pytest.approx(TONE_HERTZ, abs=2)


def test_an_incomplete_study_is_refused_in_one_sentence(folder, tmp_path):
    for name, text, other, problem in (
        ("study.yaml", None, "", "found no study.yaml"),
        ("manifest.csv", None, "", "manifest.csv: this file is missing"),
        ("key.csv", None, "", "key.csv: this file is missing"),
        ("stimuli/a01.wav", None, "", "this file is missing"),
        ("study.yaml", "conditions", "condition", "this is not the study of relpe batch"),
        ("study.yaml", "ratings: 10", "ratings: ten", "listening.ratings: found 'ten', expected"),
        ("study.yaml", "ratings: 10", "rating: 10", "listening.rating: unknown, expected one of"),
        ("manifest.csv", "stimuli/a01.wav", "", "the clips have no audio"),
        ("manifest.csv", ",6.0,", ",six,", "a01.mid has clip_seconds 'six'"),
        ("key.csv", ",other,", ",another,", "found no clip of the condition 'other'"),
    ):
        copy = shutil.copytree(folder, tmp_path / "copy")
        if text is None:
            (copy / name).unlink()
        else:
            before = (copy / name).read_text()
            (copy / name).write_text(before.replace(text, other))
            assert (copy / name).read_text() != before
        with pytest.raises(CommandError, match=problem):
            read_material(copy)
        shutil.rmtree(copy)


def test_the_page_of_listeners_starts_without_pytorch(folder):
    code = (
        "import sys; from pathlib import Path; import app.listening.page.command;"
        "from app.listening.page.server import guarded; from app.listening.page.store import Store;"
        "from app.listening.page.clips import read_material;"
        f"read_material(Path({str(folder)!r}));"
        "print(*sorted({'torch', 'gradio'} & set(sys.modules)))"
    )
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)
    assert told.stdout.split() == []
