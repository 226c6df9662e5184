from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.midi_files import END, midi_file
from tests.support.midi_files import note as midi_note
from tests.support.musicxml import FOUR_FOUR, HEAD, bars, compressed, note, score
from tokenization.errors import MidiError
from tokenization.grid import notated_lines
from tokenization.midi import musicxml, read_midi
from tokenization.midi.musicxml import TICKS, as_midi, read_music
from tokenization.score import Score

pytest.importorskip("music21")
REPEAT = '<barline location="right"><repeat direction="backward"/></barline>'
WHOLE = score({"Piano": bars(note("C4", 16))})


def read(data: bytes) -> Score:
    return read_midi(as_midi(data, "song.musicxml"))


def sixteenths(found: Score, track: int = 0) -> list[tuple[float, float, int]]:
    """Onset and length in sixteenths, and pitch."""
    unit = TICKS // 4
    return [(on / unit, length / unit, pitch) for on, length, pitch, _ in found.tracks[track].notes]


def test_plain_and_compressed_files_are_read() -> None:
    wide = WHOLE.decode().replace("UTF-8", "UTF-16").encode("utf-16")
    for data in (WHOLE, compressed(WHOLE), wide):
        found = read(data)
        assert sixteenths(found) == [(0, 16, 60)]
        assert found.tracks[0].name == "Piano"
    data = midi_file(midi_note(60) + END)
    assert as_midi(data, "song.mid") is data
    assert read_music(data, "song.mid")[1].left_out == ""


def test_chords_ties_triplets_and_rests() -> None:
    tie = '<tie type="{}"/>'
    triplet = (
        "<time-modification><actual-notes>3</actual-notes><normal-notes>2</normal-notes>"
        "</time-modification>"
    )
    first = FOUR_FOUR.replace("<divisions>4", "<divisions>12")
    content = bars(
        note("C4", 12)
        + note("E4", 12, "<chord/>")
        + note(None, 24)
        + note("G4", 12, tie.format("start")),
        note("G4", 12, tie.format("stop")) + "".join(note("A4", 4, triplet) for _ in range(3)),
        first=first,
    )
    assert sixteenths(read(score({"Piano": content}))) == [
        *[(0, 4, 60), (0, 4, 64), (12, 8, 67)],
        *[(20, 4 / 3, 69), (20 + 4 / 3, 4 / 3, 69), (20 + 8 / 3, 4 / 3, 69)],
    ]


def test_two_staves_and_voices_sound_together_and_repeats_are_played() -> None:
    backup = "<backup><duration>16</duration></backup>"
    one = note("E5", 16, staff=1) + backup + note("C4", 8, staff=2) + note("G3", 8, staff=2)
    found = read(score({"Piano": bars(one + REPEAT, note("D5", 16, staff=1))}))
    every = sorted(one for track in range(len(found.tracks)) for one in sixteenths(found, track))
    assert every == [
        *[(0, 8, 60), (0, 16, 76), (8, 8, 55)],
        *[(16, 8, 60), (16, 16, 76), (24, 8, 55), (32, 16, 74)],
    ]
    assert [metre.tick for metre in found.time_signatures] == [0]


def test_first_and_second_endings() -> None:
    def ending(number: int, kind: str, side: str, more: str = "") -> str:
        return (
            f'<barline location="{side}"><ending number="{number}" type="{kind}"/>{more}</barline>'
        )

    back = '<repeat direction="backward"/>'
    content = bars(
        note("C4", 16),
        ending(1, "start", "left") + note("D4", 16) + ending(1, "stop", "right", back),
        ending(2, "start", "left") + note("E4", 16) + ending(2, "stop", "right"),
    )
    pitches = [pitch for _, _, pitch in sixteenths(read(score({"Piano": content})))]
    assert pitches == [60, 62, 60, 64]


def test_transposing_instruments_and_programs_sound_as_they_do() -> None:
    transpose = "<transpose><diatonic>-1</diatonic><chromatic>-2</chromatic></transpose>"
    first = FOUR_FOUR.replace("</attributes>", transpose + "</attributes>")
    clarinet = (
        '<midi-instrument id="P0-I1"><midi-channel>1</midi-channel><midi-program>72</midi-program>'
        "</midi-instrument>"
    )
    found = read(score({"Clarinet": bars(note("D5", 16), first=first)}, {"Clarinet": clarinet}))
    assert sixteenths(found) == [(0, 16, 72)]
    assert found.tracks[0].program == 71


def test_a_part_without_a_program_has_that_of_its_name() -> None:
    names = ("Klarinette in B", "Viola", "Part 1")
    parts = {name: bars(note("D5", 16)) for name in names}
    assert [track.program for track in read(score(parts)).tracks] == [71, 41, 0]


def kit(*keys: int) -> str:
    """A list of percussion instruments with MIDI keys, which MusicXML counts from 1."""
    return "".join(
        f'<score-instrument id="I{key}"><instrument-name>Drum {key}</instrument-name>'
        "</score-instrument>"
        for key in keys
    ) + "".join(
        f'<midi-instrument id="I{key}"><midi-channel>10</midi-channel><midi-program>1'
        f"</midi-program><midi-unpitched>{key + 1}</midi-unpitched></midi-instrument>"
        for key in keys
    )


def test_drums_have_the_keys_of_their_instruments() -> None:
    for keys in ((38, 38), (36, 38)):
        strokes = "".join(
            "<note><unpitched><display-step>C</display-step><display-octave>5</display-octave>"
            f'</unpitched><duration>8</duration><instrument id="I{key}"/></note>'
            for key in keys
        )
        instruments = {"Drums": kit(*dict.fromkeys(keys))}
        (track,) = read(score({"Drums": bars(strokes)}, instruments)).tracks
        assert track.is_drum
        assert track.notes[:, 2].tolist() == list(keys)


def test_tempos_dynamics_and_metres() -> None:
    def direction(inside: str, sound: str = "") -> str:
        return f"<direction><direction-type>{inside}</direction-type>{sound}</direction>"

    metronome = "<metronome><beat-unit>quarter</beat-unit><per-minute>90</per-minute></metronome>"
    loud = direction("<dynamics><ff/></dynamics>")
    three = FOUR_FOUR.replace("<beats>4", "<beats>3")
    content = bars(
        direction(metronome) + note("C4", 16), loud + three + note("C4", 12), note("C4", 12)
    )
    found = read(score({"Piano": content}))
    assert [round(tempo.bpm) for tempo in found.tempos] == [90]
    assert [(m.tick, m.numerator) for m in found.time_signatures] == [(0, 4), (4 * TICKS, 3)]
    first, second, third = found.tracks[0].notes[:, 3].tolist()
    assert first < second == third


def test_a_pickup_is_completed_by_rests() -> None:
    content = bars(note("G4", 4), note("C5", 16))
    assert sixteenths(read(score({"Piano": content}))) == [(12, 4, 67), (16, 16, 72)]


@settings(max_examples=30)
@given(
    st.lists(st.sampled_from([16, 16, 12, 20, 14, 2, 4]), min_size=2, max_size=8),
    st.sampled_from([16, 4]),
)
def test_bar_lines_stay_where_they_are_beside_long_and_short_bars(lengths, first) -> None:
    """All whole bars begin on one; music21 counts a first bar that is too short as a pickup."""
    lengths = [first, *lengths, 16, 16]
    found = read(score({"Piano": bars(*(note("C4", length) for length in lengths))}))
    lines = set((4 * notated_lines(found, found.end_ticks) // TICKS).tolist())
    starts = [onset for onset, _, _ in sixteenths(found)]
    assert {start for start, length in zip(starts, lengths, strict=True) if length == 16} <= lines


BOMB = HEAD + (
    '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">'
    + "".join(
        f'<!ENTITY {b} "{10 * f"&{a};"}">' for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    + "]><score-partwise>&i;</score-partwise>"
)
OUTSIDE = HEAD + (
    '<!DOCTYPE x [<!ENTITY file SYSTEM "file:///etc/hostname">]>'
    "<score-partwise><part-list>&file;</part-list></score-partwise>"
)


def test_other_files_are_refused_in_one_sentence() -> None:
    for data, words in (
        (WHOLE[:-60], "cannot be read"),
        (BOMB.encode(), "cannot be read"),
        (OUTSIDE.encode(), "cannot be read"),
        (b"<html><body>no</body></html>", "XML element html, expected score-partwise"),
        (HEAD.encode() + b"<score-timewise/>", "XML element score-timewise"),
        (score({"Piano": bars(note(None, 16))}), "no notes"),
        (HEAD.encode() + b"<score-partwise/>", "no notes"),
        (compressed(WHOLE)[:-30], "cannot be read"),
        (compressed(WHOLE, "<container/>")[:4] + b"junk", "cannot be read"),
    ):
        with pytest.raises(MidiError, match=rf"^song\.mxl: [^\n]*{words}[^\n]*$"):
            as_midi(data, "song.mxl")


def test_too_much_xml_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(musicxml, "MOST_XML", len(WHOLE) - 1)
    for data in (WHOLE, compressed(WHOLE)):
        with pytest.raises(MidiError, match=rf"found {len(WHOLE):,} bytes of XML"):
            as_midi(data, "song.mxl")


def test_ties_of_chords_are_joined_while_another_voice_plays() -> None:
    def chord(length: int, tie: str) -> str:
        inside = f'<tie type="{tie}"/>'
        return note("A2", length, inside) + note("F3", length, "<chord/>" + inside)

    backup = "<backup><duration>16</duration></backup>"
    moving = "".join(note(pitch, 4) for pitch in ("E4", "F4", "G4", "A4"))
    content = bars(moving + backup + chord(12, "start") + chord(4, "stop"))
    held = [row for row in sixteenths(read(score({"Piano": content}))) if row[2] < 60]
    assert held == [(0, 16, 45), (0, 16, 53)]


def direction(inside: str) -> str:
    return f"<direction><direction-type>{inside}</direction-type></direction>"


PLAIN = note("C4", 8)
GRACE = note("B3", 0).replace("<note>", "<note><grace/>").replace("<duration>0</duration>", "")
MARK = "<sound dacapo='yes'/>"


def test_what_is_left_out_is_named_and_changes_nothing() -> None:
    chord = "<harmony><root><root-step>C</root-step></root><kind>major</kind></harmony>"
    marks = direction('<wedge type="crescendo"/>') + direction('<pedal type="start"/>')
    decorated = (
        "<notations><ornaments><trill-mark/></ornaments><articulations><staccato/></articulations>"
        "<arpeggiate/><fermata/></notations><lyric><text>la</text></lyric>"
    )
    fermata = "<notations><fermata/></notations>"
    plain = as_midi(score({"Piano": bars(PLAIN + note("E4", 8))}), "song.musicxml")
    for content, left_out in (
        (PLAIN, ""),
        (GRACE + PLAIN, "1 grace note"),
        (PLAIN.replace("<octave>", "<alter>0.25</alter><octave>"), "1 quarter tone"),
        ("<direction><sound><swing><first>2</first></swing></sound></direction>" + PLAIN, "swing"),
        (GRACE * 2 + note("C4", 8, fermata), "2 grace notes and fermatas"),
        (
            GRACE + chord + marks + note("C4", 8, decorated),
            "1 grace note, lyrics, chord symbols, ornaments, articulations, arpeggios, fermatas,"
            " hairpins and pedals",
        ),
    ):
        midi, found = read_music(score({"Piano": bars(content + note("E4", 8))}), "song.musicxml")
        assert found.left_out == left_out
        assert midi == plain


def test_repeats_that_are_not_played_are_named() -> None:
    for parts, left_out in (
        ({"Piano": bars(PLAIN * 2 + REPEAT, PLAIN * 2)}, ""),
        ({"Piano": bars(PLAIN * 2 + REPEAT), "Flute": bars(PLAIN * 2)}, "repeats"),
        ({"Piano": bars(PLAIN * 2, PLAIN * 2 + MARK)}, "repeats"),  # without a mark to read
    ):
        _, found = read_music(score(parts), "song.musicxml")
        assert found.left_out == left_out
        assert (found.num_notes > 4) == (not left_out)


def test_drums_without_a_key_are_counted() -> None:
    stroke = (
        "<note><unpitched><display-step>C</display-step><display-octave>5</display-octave>"
        "</unpitched><duration>8</duration></note>"
    )
    parts = {"Piano": bars(PLAIN * 2), "Drums": bars(stroke * 2)}
    _, found = read_music(score(parts), "song.musicxml")
    assert found.left_out == "2 strokes of unknown drums"
    assert found.num_notes == 2
