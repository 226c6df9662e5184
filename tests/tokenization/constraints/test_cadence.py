from __future__ import annotations

import numpy as np
import pytest

from tests.support.bands import band
from tests.support.guided import TOKENIZERS, rule_of, sample
from tests.support.scores import two_hands
from tokenization.constraints.bar_limit import BarLimit
from tokenization.constraints.cadence import LOW, NEVER, Cadence, strong_places
from tokenization.constraints.density import Density
from tokenization.constraints.rule import rule_after_prompt
from tokenization.plan import Chord, Key
from tokenization.remi.remi import PianoRemi
from tokenization.remi.vocabulary import BAR, BOS, PIANO_FAMILIES, POSITION, TIME_SIGNATURE

F = PIANO_FAMILIES


def test_the_plan_of_the_last_bar_has_one_chord_which_is_that_of_the_tonic():
    for key, tonics in ((Key(2, minor=False), (22, 26, 27)), (Key(0, minor=True), (1, 6))):
        rule = rule_of(Cadence(key), bars=1, four_four=True).advance(F.return_)
        bias = rule.bias
        assert bias is not None
        chords = bias[F.chord : F.bass] - bias[F.chord : F.bass].min()
        assert set(np.flatnonzero(chords)) == set(tonics)
        after = rule.advance(F.chord + tonics[0]).bias
        assert after is not None
        assert after[F.chord : F.later].max() < after[POSITION] - NEVER / 2


def test_the_last_chord_is_that_of_the_plan():
    inside, low = [], []
    rule = rule_of(Density(8), Cadence(), bars=1, four_four=True)
    for token in (F.return_, F.chord + 11 * 2 + 1):  # D minor
        rule = rule.advance(token)
    for seed in range(12):
        tokens = sample(rule, seed)[0]
        score = PianoRemi().decode([BOS, BAR, TIME_SIGNATURE + 7, *tokens])
        pitches = score.tracks[0].notes[:, 2]
        inside.extend(np.isin(pitches % 12, (2, 5, 9)))
        low.extend(pitches[pitches < LOW] % 12 == 2)
    assert np.mean(inside) > 0.8
    assert np.mean(low) > 0.6  # few notes are that low


@pytest.mark.parametrize("chord", [None, Chord(9, 1), Chord(9, 1, 4)])
@pytest.mark.parametrize("metre", [(4, 4), (3, 4), (6, 4)])
@pytest.mark.parametrize("name", sorted(TOKENIZERS))
def test_all_instruments_rest_together_on_a_strong_beat(name, metre, chord):
    tokenizer, length = TOKENIZERS[name], 48 * metre[0] // metre[1]
    prompt = band(metre) if name == "multitrack" else two_hands(metre=metre)
    encoded = tokenizer.encode(prompt, ends=False)
    start = length * int(np.count_nonzero(encoded.ids == BAR))
    context = np.append(encoded.ids, BAR)
    rules = {"tempo": "never", "time_signature": False, "end": False, "write": False}
    grammar = tokenizer.grammar(**rules, tracks=prompt.tracks)
    rule = rule_after_prompt(context, grammar, BarLimit(0, 0))
    bias = Cadence.after(context, tokenizer.families, None)._replace(chord=chord)
    for seed in range(6):
        more, _ = sample(rule._replace(biases=(*rule.biases, bias)), seed, name=name)
        score = tokenizer.decode([*context.tolist(), *more], tracks=encoded.tracks)
        last = max(int(track.notes[-1, 0]) for track in score.tracks if len(track))
        assert last - start in strong_places(length)
        sounding: list[int] = []
        for track in score.tracks:
            onsets, durations, pitches = track.notes[:, :3].T
            if track.is_drum:
                assert last in onsets
                continue
            given, closing = pitches[onsets < start], pitches[onsets >= start]
            assert set(closing) <= {*range(given.min() - 12, given.max() + 13)}
            if chord is not None and name == "piano":  # no root of the range may be the lowest note
                outside = closing[(closing < given.min()) | (closing > given.max())]
                assert set(outside % 12) <= {chord.root if chord.bass is None else chord.bass}
            assert (durations[onsets == last] >= 12).all()
            sounding += pitches[onsets + durations > last].tolist()
        assert sounding
        if chord is not None:
            assert min(sounding) % 12 == (chord.root if chord.bass is None else chord.bass)
