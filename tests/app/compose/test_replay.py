"""Settings as JSON: they survive a round trip, and other input is refused."""

import json
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.compose import replay
from app.compose.options import LARGEST_SEED, MusicOptions
from app.compose.prompt.prompt import read_prompt
from app.compose.replay import ReplayError
from tests.support.scores import two_hands
from tokenization.midi import write_midi

OPTIONS = replay.chosen_options(MusicOptions(bars=4), after_prompt=True)
TOLD = {"model": "piano", "seed": 1, "options": OPTIONS}


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    bars=st.integers(1, 64),
    seconds=st.one_of(st.none(), st.floats(1, 100)),
    prompt_bars=st.integers(0, 9),
    seed=st.integers(0, LARGEST_SEED - 4),
    top_p=st.floats(0.1, 1.0),
    memory=st.floats(0, 1),
    key=st.sampled_from([None, "F#m", "D dorian"]),
    ending=st.sampled_from(["auto", "bar", "cadence", "natural"]),
    variations=st.integers(1, 4),
)
def test_settings_are_read_back_as_they_were(quick_model, **values):
    options = MusicOptions(**values)
    told = replay.settings(options, quick_model, read_prompt(write_midi(two_hands())))
    back = replay.read(json.dumps(told))
    wanted = replace(options, beats="file", drums="none")  # as they were found
    wanted = wanted if options.seconds is None else replace(wanted, bars=MusicOptions.bars)
    assert back.options == wanted
    assert (back.model, back.model_sha256) == ("small", "abcd")
    assert replay.read(json.dumps({"output": [], "replay": told})) == back
    alone = replay.settings(options, quick_model)
    assert replay.read(json.dumps(alone)).prompt_sha256 is None


def test_the_region_and_the_tracks_are_read_back(quick_model):
    data = write_midi(two_hands())
    for first, last in ((None, 3), (2, None)):
        prompt = read_prompt(data, last_bar=last, first_bar=first, heard={1}, played=None)
        told = replay.settings(MusicOptions(seed=1), quick_model, prompt, data)
        back = replay.read(json.dumps(told))
        assert (back.first_bar, back.last_bar, back.heard, back.played) == (first, last, {1}, None)
        assert back.fits(data)
        assert not back.fits(data + b" ")


def test_settings_without_an_option_are_of_an_earlier_version_and_refused():
    alone = replay.chosen_options(MusicOptions(bars=4), after_prompt=False)
    del alone["variations"]  # does not affect a piece
    told = TOLD | {"options": alone}
    assert replay.read(json.dumps(told)).options == MusicOptions(bars=4, seed=1)
    with pytest.raises(ReplayError, match=r"the settings have no distance, .* earlier version"):
        replay.read(json.dumps(told | {"prompt_sha256": "ab"}))
    del alone["memory"]
    with pytest.raises(ReplayError, match="the settings have no memory"):
        replay.read(json.dumps(told))


def test_device_backend_and_precision_have_the_names_of_options():
    for backend, device, wanted in (
        (None, "auto", ("auto", "auto", "int8")),
        ("compiled float32 for znver3", "cpu", ("cpu", "compiled", "float32")),
        ("torch float32 in tiles of 16 on cuda", "cuda", ("cuda", "torch", "float32")),
        ("magic", "abacus", ("auto", "auto", "int8")),
    ):
        compute = replay.read(json.dumps(TOLD | {"backend": backend, "device": device})).compute
        assert (compute["device"], compute["backend"], compute["precision"]) == wanted


def test_differences_are_named(quick_model, monkeypatch):
    told = replay.settings(MusicOptions(seed=1), quick_model)
    assert told["threads"] > 0
    assert replay.read(json.dumps(told)).differences(quick_model) == []
    assert replay.read(json.dumps(TOLD)).differences(quick_model) == []
    other = {"device": "cuda", "backend": "torch float32", "model_sha256": "ef", "threads": 99}
    found = replay.read(json.dumps(told | other)).differences(quick_model)
    assert found == [
        "weights that differ from those of small",
        "torch float32 (here quick)",
        "cuda (here cpu)",
    ]
    monkeypatch.setattr(replay, "versions", lambda: "relpe 1, torch 2, numba 3")
    for was, said in (
        ("relpe 1, torch 1, numba 3", "torch 1 (here torch 2)"),
        ("relpe 1, torch 2", "fewer packages (here numba 3)"),
    ):
        told = TOLD | {"versions": was}
        assert replay.read(json.dumps(told)).differences(quick_model) == [said]


OTHER_INPUT = [
    ("", "not JSON"),
    ("[" * 100_000, "not JSON"),
    ("[]", "without the options"),
    ({"options": 3}, "without the options"),
    ({"options": {}}, "no model"),
    (TOLD | {"seed": None}, "no seed"),
    (TOLD | {"versions": 3}, "versions is 3, expected text"),
    (TOLD | {"seed": True}, "seed is True"),
    (TOLD | {"seed": -1}, "seed is -1, expected 0"),
    (TOLD | {"options": {"bars": "4"}}, "bars is '4'"),
    (TOLD | {"options": {"bars": 10**9}}, "bars is 1000000000, expected 1 to"),
    (TOLD | {"options": {"bars": None}}, "bars is None"),
    (TOLD | {"options": {"key": "H"}}, "key is 'H'"),
    (TOLD | {"options": {"beats": "mine"}}, "beats is 'mine'"),
    (TOLD | {"options": {"colour": 1}}, "this release has no option 'colour'"),
    (TOLD | {"heard": [1, "x"]}, "heard is"),
    (TOLD | {"played": 3}, "played is 3, expected a list"),
    (TOLD | {"first_bar": "1"}, "first_bar is '1'"),
    ("x" * 1_000_001, "1,000,001 bytes"),
]


def test_other_input_is_refused_in_one_sentence():
    for content, words in OTHER_INPUT:
        text = content if isinstance(content, str) else json.dumps(content)
        with pytest.raises(ReplayError, match=words) as refused:
            replay.read(text)
        assert len(str(refused.value)) < 400
        assert "\n" not in str(refused.value)


def test_a_clip_is_read_from_a_manifest_or_a_key_and_what_is_neither_is_refused(tmp_path):
    columns = "file,model,model_sha256,backend,seed,settings"
    clip = json.dumps(OPTIONS | {"clip": "tail", "clip_bars": 4, "prompt_sha256": "00"})
    quoted = clip.replace('"', '""')
    row = f'midi/a_v01.mid,piano,abcd,torch float32,7,"{quoted}"\n'
    path = tmp_path / "manifest.csv"
    path.write_text(f"{columns}\n{row}")
    for name in ("a_v01", "a_v01.flac", "midi/a_v01.mid"):
        settings = replay.replay_of_clip(path, name)
        assert (settings.model, settings.options.seed, settings.prompt_sha256) == ("piano", 7, "00")
    for text, name, problem in (
        (f"{columns}\n{row}", "b_v01", "no clip 'b_v01', expected one such as a_v01"),
        (f"{columns}\n", "a_v01", "no clip 'a_v01', the manifest is empty"),
        (f"{columns}\nreal.mid,,,,7,{{}}\n", "real", "'real' was not generated by a model"),
        ("file,audio\na.mid,a.flac\n", "a", "the manifest of a study.*key.csv instead"),
        (f"{columns}\na.mid,piano\n", "a", r"not a manifest .*\(the row of a.mid is damaged\)"),
        (f"{columns}\na.mid,piano,,,7,[]\n", "a", "the row of a.mid is damaged"),
        ("a,b\n1,2\n", "a", r"this is not a manifest of relpe batch \(it has no column file\)"),
        ("", "a", "this is not a manifest of relpe batch"),
        ("\0\xff", "a", "this is not a manifest of relpe batch"),
    ):
        path.write_text(text, encoding="latin-1")
        with pytest.raises(ReplayError, match=problem):
            replay.replay_of_clip(path, name)
    with pytest.raises(ReplayError, match="No such file or directory; choose another file"):
        replay.replay_of_clip(tmp_path / "nothing.csv", "a")
