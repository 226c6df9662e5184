// A click on each beat while the sound plays, higher on the first of a bar. It is heard in the browser only.

import { lowerBound } from "../roll/notes.js";

const AHEAD_SECONDS = 0.12; // how early a click is scheduled
const JITTER_SECONDS = 0.1;

export class Metronome {
  isOn = false;

  constructor(sound) {
    this.sound = sound;
    this.until = 0; // seconds of the piece up to which clicks are scheduled
  }

  set(isOn) {
    this.isOn = isOn;
    if (!isOn) return;
    this.context ??= this.sound.synth.context ?? new AudioContext();
    this.context.resume();
    this.until = this.sound.position;
  }

  /** `bars` and beats in quarter notes; `hasBeats`: quarter notes are beats, else only bar lines click. */
  show(bars, hasBeats) {
    Object.assign(this, { bars, hasBeats });
  }

  /** Called while the sound plays: schedules the clicks that come next. */
  step() {
    const { sound, bars, context } = this;
    if (!this.isOn || !bars || !sound.isPlaying) return;
    const now = sound.position;
    const end = now + AHEAD_SECONDS;
    // the position was moved; a clock that goes back by an instant would repeat a click
    if (this.until > end + JITTER_SECONDS || this.until < now - 0.5) this.until = now;
    for (const [beat, isFirst] of this.beats(sound.tempo.beatAt(this.until), sound.tempo.beatAt(end))) {
      this.click(context.currentTime + Math.max(0, sound.tempo.secondsAt(beat) - now), isFirst);
    }
    this.until = Math.max(this.until, end);
  }

  /** Beats from one place to another, each with whether a bar begins. */
  *beats(from, to) {
    const { bars, hasBeats } = this;
    for (let index = Math.max(0, lowerBound(bars, from, (bar) => bar) - 1); index < bars.length && bars[index] < to; index += 1) {
      const next = hasBeats ? (bars[index + 1] ?? bars[index]) : bars[index];
      for (let beat = bars[index]; beat < to && (beat === bars[index] || beat < next - 0.01); beat += 1) {
        if (beat >= from) yield [beat, beat === bars[index]];
      }
    }
  }

  click(when, isFirst) {
    const { context } = this;
    const [tone, level] = [context.createOscillator(), context.createGain()];
    tone.frequency.value = isFirst ? 1760 : 1175;
    level.gain.setValueAtTime(0.25 * this.sound.level, when);
    level.gain.exponentialRampToValueAtTime(0.001, when + 0.05);
    tone.connect(level).connect(context.destination);
    tone.start(when);
    tone.stop(when + 0.06);
  }
}
