"""The command `relpe jam` on a loopback in place of MIDI ports."""

from __future__ import annotations

import signal
import sys
from types import SimpleNamespace

import pytest

from app.cli.jam import find_port
from tests.support.commands import relpe
from tokenization.midi import read_midi

CHORD = [[0x90, 57, 80], [0x90, 60, 80], [0x90, 64, 80]]


class LoopbackError(Exception):
    """In place of `rtmidi.RtMidiError`."""


@pytest.fixture
def loop(monkeypatch):
    """What was sent, and what is to be heard; `interrupts` are numbers of notes before Ctrl+C."""
    state = SimpleNamespace(sent=[], heard=[], interrupts=[], breaks=10**9, opened=[])

    class Port:
        def __init__(self, name):
            assert name == "relpe"

        def get_ports(self):
            return ["Synth", "Organ"]

        def open_port(self, number):
            state.opened.append(number)

        def open_virtual_port(self, name):
            raise LoopbackError("no virtual ports here")

        def close_port(self):
            state.opened.append("closed")

        def get_message(self):
            return (state.heard.pop(0), 0.0) if state.heard else None

        def send_message(self, message):
            if len(state.sent) >= state.breaks:
                raise LoopbackError("unplugged")
            state.sent.append(message)
            notes = [m for m in state.sent if m[0] & 0xF0 == 0x90]
            if state.interrupts and len(notes) >= state.interrupts[0]:
                state.interrupts.pop(0)
                signal.raise_signal(signal.SIGINT)

    module = SimpleNamespace(MidiIn=Port, MidiOut=Port, RtMidiError=LoopbackError)
    monkeypatch.setitem(sys.modules, "rtmidi", module)
    return state


def jam(folder, *extra):
    quick = ("--metre", "2/4", "--tempo", "300", "--seed", "3")
    return relpe(folder, "jam", "--out", "organ", *quick, *extra)


def notes_of(sent):
    """Note-ons; each must have its end."""
    on = [message[0] & 15 | message[1] << 4 for message in sent if message[0] & 0xF0 == 0x90]
    off = [message[0] & 15 | message[1] << 4 for message in sent if message[0] & 0xF0 == 0x80]
    assert sorted(on) == sorted(off)
    return [message for message in sent if message[0] & 0xF0 == 0x90]


def test_a_jam_over_a_chart_sounds_and_is_written(folder, loop, capsys):
    assert jam(folder, "--chords", "C | F", "--bars", "3", "--clock") == 0
    score = read_midi((folder / "out.mid").read_bytes())
    assert loop.opened == [1, "closed"]
    assert len(notes_of(loop.sent)) == score.num_notes > 0
    assert loop.sent.count((0xFA,)) == loop.sent.count((0xFC,)) == 1
    assert "bars, seed 3, model small" in capsys.readouterr().err


def test_ctrl_c_ends_with_a_cadence_and_twice_at_once(folder, loop, capsys):
    loop.heard = list(CHORD)
    loop.interrupts = [2]
    assert jam(folder, "--in", "1") == 130
    assert loop.opened == [0, 1, "closed", "closed"]
    assert len(notes_of(loop.sent)) == read_midi((folder / "out.mid").read_bytes()).num_notes
    said = capsys.readouterr().err
    assert "play a chord to begin" in said
    assert "out.mid: " in said
    loop.sent.clear()
    loop.interrupts = [2, 3]
    assert jam(folder) == 130
    assert len(notes_of(loop.sent)) < 30


def test_what_cannot_be_played_is_said_in_one_sentence(folder, loop, capsys, monkeypatch):
    for problem, *extra in (
        ("no port fits 'cello'; the ports are 1 Synth, 2 Organ", "--out", "cello"),
        ("several ports fit 'n'", "--in", "n"),
        ("--in virtual: no virtual ports here", "--in", "virtual"),
        ("--trade needs a player", "--trade"),
        ("3 chords, expected one or two", "--chords", "C F G"),
        ("metre is '5/16'", "--metre", "5/16"),
        ("out.txt: expected a file name", "--output", "out.txt"),
    ):
        assert jam(folder, *extra) == 2
        said = capsys.readouterr().err
        assert problem in said
        assert "Traceback" not in said
    loop.breaks = 4
    assert jam(folder) == 2
    assert "the MIDI port failed: unplugged" in capsys.readouterr().err
    assert relpe(folder, "jam", "--list") == 0
    assert capsys.readouterr().out == "--in:\n  1 Synth\n  2 Organ\n--out:\n  1 Synth\n  2 Organ\n"
    assert relpe(folder, "jam") == 2
    assert "--out is missing" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "rtmidi", None)
    assert jam(folder) == 2
    assert (
        "python-rtmidi, which opens MIDI ports, is not installed; run pip install 'relpe[live]'"
        in (capsys.readouterr().err)
    )


def test_ports_are_found_by_number_name_and_part():
    names = ["Organ", "Organ 2", "Synth"]
    assert [find_port(names, text) for text in ("2", "organ", "ORGAN 2", "syn")] == [1, 0, 1, 2]
