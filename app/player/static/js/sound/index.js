// The sound and its transport: the position in seconds of the piece, the buttons, and what plays the music: the
// synthesizer in the browser, or, where there is none and in blind comparisons, what the server renders.

import { MidiOut } from "./midi_out.js";
import { grey, write } from "../dom.js";
import { Rendered } from "./rendered.js";
import { FIRST_CHANNEL, HAND } from "./score.js";
import { Synth } from "./synth.js";
import { TempoMap } from "../tempo.js";

export const PROMPT = "prompt"; // the name of a file without new music

const clock = (seconds) => {
  const whole = Math.max(0, Math.floor(seconds));
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
};

export class Sound {
  tempo = new TempoMap();
  cursor = 0; // position in seconds while nothing plays
  name = ""; // of the music that is shown
  wanted = null; // {name, key, request} of its rendered sound; null: there is none
  tracks = []; // that the synthesizer plays: {id, program, drums, gain, notes, controls}
  changed = new Map(); // {program, volume} by track, until the edited piece comes
  change = { tempo: 1, semitones: 0 }; // likewise
  willPlay = false; // as soon as the synthesizer is loaded
  spare = new Map(); // more notes by track, which are heard but not shown
  isLive = false; // the music is made while it plays: its position is not moved by hand
  isBlind = false; // only rendered sound is played

  constructor(part, server, roll, { font, onError }) {
    Object.assign(this, { part, server, roll });
    this.box = part("player");
    this.shown = Object.fromEntries(["now", "total", "play", "roll", "loading"].map((name) => [name, part(name)]));
    const level = () => this.level;
    this.rendered = new Rendered(part("sound"), server, { level, onError, onChange: () => this.animate() });
    this.synth = new Synth(font, { level, onChange: () => this.onSynth() });
    part("volume").addEventListener("input", () => [this.rendered, this.synth].forEach((one) => one.setLevel()));
    part("midi-out").hidden = !navigator.requestMIDIAccess;
    part("midi-out").addEventListener("click", async () => {
      this.out ??= await MidiOut.of(this, part("midi-out"), onError);
      this.update();
    });
    part("play").addEventListener("click", () => this.toggle());
    part("from-start").addEventListener("click", () => this.jump(0));
    part("from-splice").addEventListener("click", () => this.jump(this.splice));
  }

  get level() {
    return this.out?.port ? 0 : this.part("volume").value ** 2;
  }

  get hasSynth() {
    return !this.isBlind && this.synth.state !== "failed";
  }

  get engine() {
    return this.hasSynth ? this.synth : this.rendered;
  }

  get isPlaying() {
    return this.engine.isPlaying;
  }

  get position() {
    return this.isPlaying ? this.engine.position : this.cursor;
  }

  get beat() {
    return this.tempo.beatAt(this.position);
  }

  /**
   * Takes the music that is shown. `name` identifies it, `wanted` is its rendered sound; `tracks` with their notes,
   * `end` and `limit`, up to which it is written, in quarter notes; `start`: where a new piece is played from, in
   * seconds; `why` it has no sound; `isEdited`: it is the piece shown before, with other notes or another tempo.
   */
  show({ name, wanted, tracks, tempo, splice, start, end, limit, why, isEdited }) {
    const { beat, isPlaying } = this;
    const isOther = name !== this.name && this.name !== PROMPT; // new music continues the prompt that plays
    const isOtherMix = wanted?.key !== this.wanted?.key;
    if (isOther || isEdited) this.changed.clear();
    Object.assign(this, { name, wanted, tracks, tempo, splice, end, limit });
    this.canPlay = this.hasSynth ? this.isLive || tracks.some(({ notes }) => notes.length) : Boolean(wanted);
    this.part("from-splice").hidden = splice <= 0;
    for (const one of ["play", "from-start", "from-splice"]) grey(this.part(one), this.canPlay ? "" : why);
    if (isEdited) this.cursor = tempo.secondsAt(beat);
    else if (start !== null && !isPlaying) this.moveTo(start);
    if (name && !this.box.classList.contains("example")) this.synth.load();
    this.update(isEdited ? beat : undefined);
    if (!this.canPlay) this.pause();
    else if (isPlaying && (this.hasSynth ? isOther && !isEdited : isOtherMix)) this.play(this.position);
    this.showTime();
  }

  moveTo(second) {
    if (this.cursor !== second) this.roll.lookAt(this.tempo.beatAt(second), false);
    this.cursor = second;
  }

  /** Gives the synthesizer what it is to play now. */
  update(beat) {
    if (this.synth.state !== "ready") return;
    const { tempo, end, limit, changed, change } = this;
    const tracks = this.tracks.map((track) => ({ ...track, ...changed.get(track.id), notes: [...track.notes, ...(this.spare.get(track.id) ?? [])] }));
    this.out?.show(tracks, tempo);
    this.synth.show({ tracks, tempo, end: tempo.secondsAt(end), limit: tempo.secondsAt(limit), rate: change.tempo, semitones: change.semitones }, beat);
  }

  /** Changes instruments and volumes of tracks, or the tempo by a factor and the pitch, before the server has. */
  alter({ programs = [], volumes = [], tempo, semitones }) {
    for (const [id, program] of programs) this.changed.set(id, { ...this.changed.get(id), program });
    for (const [id, volume] of volumes) this.changed.set(id, { ...this.changed.get(id), volume });
    if (programs.length || volumes.length) this.update();
    if (tempo === undefined || (tempo === this.change.tempo && semitones === this.change.semitones)) return;
    this.change = { tempo, semitones };
    if (this.synth.state === "ready") this.synth.send("setRate", tempo, semitones);
  }

  /** Plays a note of a track for some seconds. */
  touch(id, pitch, velocity, seconds) {
    if (this.synth.state !== "ready") return;
    const index = this.tracks.findIndex((track) => track.id === id);
    if (index >= 0) this.synth.press(FIRST_CHANNEL + index, pitch, velocity, seconds);
  }

  /** Plays a key by hand as a General MIDI program, or releases it (velocity 0); returns whether it is heard. */
  key({ pitch, velocity, program }) {
    const { synth } = this;
    synth.load();
    if (synth.state !== "ready" || pitch === null) return false;
    if (program !== this.program) synth.send("setChannel", HAND, { program });
    this.program = program;
    this.out?.key(pitch, velocity);
    if (velocity) synth.press(HAND, pitch, velocity);
    else synth.send("release", HAND, pitch);
    return true;
  }

  onSynth() {
    const { synth } = this;
    if (synth.state === "ready" && !this.wasReady) {
      this.wasReady = true;
      this.update();
      if (this.loop) this.setLoop(this.loop);
    }
    if (this.willPlay && synth.state !== "loading") this.play(this.cursor);
    this.animate();
  }

  /** Plays a region again and again: {from, to} in seconds, or null. */
  setLoop(loop) {
    this.loop = loop;
    if (this.synth.state === "ready") this.synth.send("setLoop", loop);
  }

  /** Forgets the position in a piece. */
  reset() {
    this.pause();
    this.cursor = 0;
    this.changed.clear();
  }

  play(second) {
    this.roll.follow = true;
    if (this.hasSynth) {
      this.synth.load();
      this.synth.wake(); // which browsers allow within a click
    }
    this.willPlay = this.hasSynth && this.synth.state !== "ready";
    this.cursor = second;
    if (!this.willPlay && this.canPlay) this.engine.play(second, this.wanted);
    this.animate();
  }

  pause() {
    this.cursor = this.position;
    this.willPlay = this.wasPlaying = false;
    for (const one of [this.synth, this.rendered]) if (one.isPlaying || one.isPending) one.pause();
    this.showTime();
  }

  toggle() {
    if (this.isPlaying || this.willPlay || this.engine.isPending) this.pause();
    else if (this.canPlay) this.play(this.cursor >= this.tempo.seconds - 0.05 ? 0 : this.cursor);
  }

  seek(beat) {
    if (this.isLive) return;
    const second = this.tempo.secondsAt(beat);
    this.roll.follow = true;
    if (this.isPlaying) this.play(second);
    else this.cursor = second;
    this.showTime();
  }

  jump(beat) {
    this.seek(beat);
    this.roll.lookAt(beat, false);
  }

  showTime() {
    const { shown, box, roll, isPlaying, synth } = this;
    const whole = this.tempo.seconds;
    const now = Math.min(this.position, whole);
    const isPending = !isPlaying && (this.willPlay || Boolean(this.engine.isPending));
    write(shown.now, clock(now));
    write(shown.total, ` / ${clock(whole)}`);
    box.classList.toggle("playing", isPlaying);
    box.classList.toggle("making", isPending);
    const label = isPending ? "Preparing the sound" : isPlaying ? "Pause" : "Play";
    write(shown.play, label, "aria-label");
    if (this.canPlay) write(shown.play, isPending ? `${label} …` : `${label} (space bar)`, "title");
    shown.loading.hidden = synth.state !== "loading" && synth.state !== "failed";
    const share = `${10 * Math.floor(10 * synth.share)} %`; // seldom enough for screen readers
    write(shown.loading, synth.state === "loading" ? `Loading the instruments: ${share}` : synth.why && `${synth.why}: the server renders the sound, which takes a moment.`);
    write(shown.roll, Math.round(whole), "aria-valuemax");
    write(shown.roll, Math.round(now), "aria-valuenow");
    write(shown.roll, `${clock(now)} of ${clock(whole)}`, "aria-valuetext");
    roll.isPlaying = isPlaying;
    roll.setPlayhead(this.canPlay ? this.tempo.beatAt(now) : null, isPlaying);
  }

  animate() {
    if (this.isPlaying) [this.cursor, this.wasPlaying] = [this.position, true];
    else if (this.wasPlaying) [this.cursor, this.wasPlaying] = [this.tempo.seconds, false]; // it has ended
    this.showTime();
    this.onStep?.();
    this.out?.step();
    this.onLive?.();
    if (!this.isPlaying || this.isAwaited) return;
    this.isAwaited = true;
    requestAnimationFrame(() => {
      this.isAwaited = false;
      this.animate();
    });
  }
}
