"""Limits and counts that documents state are those of the code."""

from __future__ import annotations

import json
import math

import numpy as np

from app.audio import loudness, render
from app.compose import follow, options, study
from app.listening.page import server as ratings
from app.listening.page import store as listeners
from app.server import sandbox, scheduler, store, studies, studio
from app.web.guard import limits, port
from relpe.attention.delta.rule import CHUNK
from relpe.decoding.eager import PREFILL_CHUNK
from relpe.models.checkpoint import SHARD_BYTES
from relpe.models.pointer import config as pointer
from tests.support.paths import ROOT
from tokenization.analysis import accidents, bar_evidence, beat_tracker, chords, keys
from tokenization.grid import STEPS_PER_BEAT
from tokenization.plan_text import MAX_DISTANCE
from tokenization.remi.vocabulary import MAX_GAP, TEMPO_GRID, TEMPOS_PER_OCTAVE, VOCABULARY
from training.data.copies.near_copies import SHARE
from training.tasks.music import MusicTask
from training.tuning import pieces, tune
from training.tuning.options import TuneOptions

COUNT = "no one two three four five six seven eight nine ten eleven twelve".split()  # noqa: SIM905 - a line, not thirteen
MIB = 1 << 20
MOST_WORDS = 24_000
"""Words that are written by hand, in all documents but the cards of models, which are generated."""
PIECE = options.MusicOptions()
BEATS = np.load(ROOT / "tokenization" / "analysis" / "beat_salience" / "beat_salience.npz")
RANKED = json.loads((ROOT / "tokenization" / "measures" / "takes.json").read_text("utf-8"))
MODELS = ROOT / "checkpoints"
START, HOW_TO, CONCEPTS = (f"docs/pages/{name}" for name in ("start", "how-to", "concepts"))


def weights(model: str) -> str:
    """Return the number of weights that the card of a released model states, in millions."""
    card = (MODELS / model / "README.md").read_text("utf-8")
    return f"{int(card.split('A decoder of ')[1].split()[0].replace(',', '')) / 1e6:.1f} M"


def ids(first: str, last: str) -> str:
    """Return the ids of a range of tokens."""
    return f"{VOCABULARY.ids[first]}–{VOCABULARY.ids[last]} |"


STATED = {
    f"{START}/install.md": [f"http://127.0.0.1:{port.FIRST_PORT}"],
    f"{START}/continue.md": [
        f"{COUNT[PIECE.takes].capitalize()} [takes]",
        f"grid of {COUNT[STEPS_PER_BEAT]} steps per quarter note",
    ],
    f"{START}/train.md": [f"of {weights('piano')} weights", f"of {weights('piano-spe')} weights"],
    f"{HOW_TO}/batch.md": [
        f"is {loudness.LOUDNESS_LUFS:.0f} LUFS",
        f"exceed {20 * math.log10(loudness.CEILING):.0f} dB",
        f"fades out in {COUNT[int(render.CLIP_TAIL_SECONDS)]} seconds",
    ],
    f"{HOW_TO}/corpus.md": [f"at least {100 * SHARE:.0f} % of their melody"],
    f"{HOW_TO}/fill.md": [f"at most {MAX_GAP} bars"],
    f"{HOW_TO}/host.md": [
        f"up to {scheduler.MAX_ROWS} pieces or takes",
        f"may have {COUNT[studio.MAX_JOBS_OF_SESSION]} jobs",
    ],
    f"{HOW_TO}/jam.md": [
        f"held {1000 * follow.SETTLED_SECONDS:.0f} ms after its last key",
        f"you play {COUNT[follow.TRADED]} bars",
    ],
    f"{HOW_TO}/steer.md": [
        f"(default {PIECE.top_p})",
        f"first {keys._BEGINNING_BARS} bars of the piece, unless its last "
        f"{COUNT[keys._ENDING_BARS]} are",
    ],
    f"{HOW_TO}/takes.md": [
        f"{COUNT[PIECE.takes]} takes are generated",
        f"takes are at most {options.MOST_ROWS}.",
        f"One bar in {COUNT[study.HELD_SHARE]}",
        f"under {COUNT[study.FEWEST_BARS]} bars are not studied",
    ],
    f"{HOW_TO}/tune.md": [
        f"{COUNT[pieces.FEWEST_PIECES].capitalize()} or more MIDI files",
        f"{COUNT[int(TuneOptions.minutes)]} minutes (`--minutes`)",
        f"{COUNT[tune._EVALUATIONS][:4]}fth of the time",
    ],
    f"{CONCEPTS}/attention.md": [f"corrections of {CHUNK} positions"],
    f"{CONCEPTS}/beats.md": [
        f"fewer than {bar_evidence.FEWEST_NOTES} notes",
        f"at most {bar_evidence._COARSE_TICKS} ticks in a beat",
        f"{sum(BEATS[name].size for name in BEATS if name != 'confidence'):,} weights",
        f"within {1000 * beat_tracker._NEAR_SECONDS:.0f} ms",
    ],
    f"{CONCEPTS}/decoding.md": [f"# {PREFILL_CHUNK} at a time"],
    f"{CONCEPTS}/plans.md": [
        f"of the {MAX_DISTANCE} bars before",
        f"{COUNT[len(chords.QUALITIES)]} qualities",
        "by {} to +{} semitones".format(*MusicTask.transposition),
    ],
    f"{CONCEPTS}/pointer.md": [
        f"last {pointer.PointerConfig().reach:,} tokens",
        f"each of {COUNT[len(pointer.SIZES) + 1]} tables",
        f"reach {math.exp(pointer.MOST_IMPOSED):.0f} to 1",
    ],
    f"{CONCEPTS}/state.md": [f"in parts of {PREFILL_CHUNK} tokens"],
    f"{CONCEPTS}/takes.md": [
        "on {} measures of prompt and continuation ({} for bands)".format(
            *(len(RANKED[kind]["measures"]) for kind in ("piano", "band"))
        ),
        f"over {100 * accidents._TWINS:.0f} % of equal bars",
    ],
    f"{CONCEPTS}/tokens.md": [
        f"{len(VOCABULARY):,} ids",
        *(ids("PAD", "MASK"), ids("Bar", "TimeSignature_96"), ids("Position_0", "Position_95")),
        *(ids("Tempo_15.0", "Tempo_498.8"), ids("Program_Drums", "Part_3")),
        *(ids("Pitch_0", "Drum_127"), ids("Velocity_0", "Velocity_31")),
        *(ids("Duration_1", "Duration_768"), ids("DrumVelocity_0", "DrumVelocity_31")),
        *(ids("Return_New", "Last"), ids("Style_0", VOCABULARY.names[-1])),
        f"in steps of {100 * (2 ** (1 / TEMPOS_PER_OCTAVE) - 1):.1f} %",
        f"outside {TEMPO_GRID[0]:.0f} to {TEMPO_GRID[-1]:.0f}",
    ],
    "SECURITY.md": [
        f"{sandbox.SECONDS:.0f} s and, on Linux, {sandbox.MAX_BYTES >> 30} GiB of memory",
        f"up to {scheduler.MAX_ROWS} pieces or takes",
        f"may have {studio.MAX_JOBS_OF_SESSION} jobs",
        f"at most {studies.MOST_CLIPS} clips, {studies.MOST_PROMPTS} prompts",
        f"at most about {store.MOST_BYTES_OF_SESSION // MIB} MB",
        f"all sessions {store.MOST_BYTES // MIB} MB",
        f"within {COUNT[int(limits.UPLOAD_SECONDS / 60)]} minutes and all uploads",
        f"may try {limits.MAX_LOGINS} passwords a minute",
        f"{COUNT[listeners._CODE_LETTERS]} random letters",
        f"try {ratings.WRONG_CODES} unknown codes and begin {ratings.JOINS} tests within "
        f"{COUNT[int(ratings.JOIN_SECONDS / 60)]} minutes",
    ],
    "CONTRIBUTING.md": [
        f"at most {MOST_WORDS:,} words",
        f"at most {SHARD_BYTES // MIB} MiB",
    ],
    "checkpoints/README.md": [
        f"at most {SHARD_BYTES // MIB} MiB per file",
        f"together take {sum(p.stat().st_size for p in MODELS.rglob('*.*')) / MIB:.0f} MiB",
        *(f"| {weights(name)} |" for name in ("piano", "groove", "piano-spe", "piano-siren")),
    ],
    "GLOSSARY.md": [
        f"1/{STEPS_PER_BEAT} of a quarter note",
        f"over {100 * accidents._TWINS:.0f} % of equal bars",
    ],
}


def test_documents_state_what_the_code_does():
    for name, texts in STATED.items():
        document = " ".join((ROOT / name).read_text("utf-8").split())
        assert not [text for text in texts if text not in document], name


def test_documents_stay_short():
    documents = [
        path
        for path in (*ROOT.glob("*.md"), *ROOT.glob("[a-z]*/**/*.md"))
        if path.parent.parent.name != "checkpoints"
        and not {"build", "data", "runs"} & {*path.parts}
    ]
    words = {path: len(path.read_text("utf-8").split()) for path in documents}
    assert sum(words.values()) <= MOST_WORDS
    assert words[ROOT / "README.md"] <= 500
