// Music that sounds while it is written: the server renders its finished bars in parts, which are
// scheduled one after the other on the clock of the audio hardware, so that no gap is heard.

import { fileUrl } from "./server.js";

const SOON = 0.05; // seconds until the first part begins
const RATE = 44100; // of the parts; with another one, each of them would be resampled by itself
const FADE = 0.01; // seconds, of the end by a click
const NO_TURN = 0.002; // seconds: an earlier start is too late to be exact
const WRITING = ["composing", "rendering"];

export class Live {
  underruns = 0; // gaps that were heard, of all pieces
  parts = []; // {begin, seconds, buffer} in order; the buffer is missing while it loads
  played = []; // {at, begin, seconds, source} on the audio clock
  isOn = false;
  job = "";

  /** `onMove()`: time passes; `onStart(second)`: it begins; `onEnd()`: all of it was played. */
  constructor(box, { level, onMove, onStart, onEnd }) {
    Object.assign(this, { box, onMove, onStart, onEnd });
    this.levelOf = level;
  }

  /** Whether there is music to play. */
  get canPlay() {
    return this.parts.some((part) => part.buffer);
  }

  /** Seconds of the piece. */
  get position() {
    const now = this.context.currentTime;
    const current = this.played.findLast(({ at }) => at <= now) ?? this.played[0];
    if (!current) return this.from;
    return current.begin + Math.max(0, Math.min(now - current.at, current.seconds));
  }

  get end() {
    return this.parts.at(-1).begin + this.parts.at(-1).seconds;
  }

  /** Takes the parts of a frame; new music begins to play as soon as it can without a gap. */
  show({ job, phase, live }) {
    if (job !== this.job) this.forget(job);
    if (phase === "done") this.isWhole = true; // also if the rest was skipped
    this.isAwaited ||= Boolean(live) && WRITING.includes(phase); // not if a page opens with finished music
    if (!live || this.isLost || !this.isAwaited) return;
    this.isWhole = live.whole;
    for (const [path, begin, seconds] of live.parts.slice(this.parts.length)) this.load({ path, begin, seconds }, job);
    this.mayStart ||= live.starts;
    this.advance();
  }

  /** Forgets the music of a piece. */
  forget(job = "") {
    this.stop();
    [this.job, this.parts] = [job, []];
    this.isAwaited = this.isWhole = this.isLost = this.mayStart = this.wasStarted = false;
  }

  async load(part, job) {
    this.parts.push(part);
    this.context ??= new AudioContext({ sampleRate: RATE, latencyHint: "playback" });
    try {
      const answer = await fetch(fileUrl(part.path));
      if (!answer.ok) throw new Error(`${part.path}: ${answer.status}`);
      part.buffer = await this.context.decodeAudioData(await answer.arrayBuffer());
    } catch (error) {
      console.warn(error);
      if (job !== this.job) return;
      this.forget(job);
      this.isLost = true; // the sound of the whole is rendered in any case
      return;
    }
    if (job === this.job) this.advance();
  }

  /** Begins if it is time to, and schedules the parts that have come. */
  advance() {
    if (this.mayStart && !this.wasStarted && this.parts[0]?.buffer) this.play(this.parts[0].begin);
    else if (this.isOn) this.schedule();
  }

  /** Plays from a second of the piece. */
  async play(second) {
    this.wasStarted = true;
    const { job } = this;
    await this.context.resume(); // waits for a click on the page if there was none
    if (job !== this.job || this.isOn || !this.canPlay) return;
    this.from = Math.max(this.parts[0].begin, second < this.end ? second : 0);
    [this.isOn, this.next, this.played] = [true, 0, []];
    this.gain = new GainNode(this.context, { gain: this.levelOf() });
    this.gain.connect(this.context.destination);
    while (this.parts[this.next] && this.parts[this.next].begin + this.parts[this.next].seconds <= this.from) this.next += 1;
    // on a sample, so that parts join without interpolation
    this.free = Math.ceil((this.context.currentTime + SOON) * RATE) / RATE;
    this.onStart(this.from);
    this.schedule();
    this.tick();
  }

  schedule() {
    for (let part; (part = this.parts[this.next])?.buffer; this.next += 1) {
      const skipped = Math.max(0, this.from - part.begin);
      const now = this.context.currentTime;
      if (this.free < now + NO_TURN) {
        this.countGap();
        this.free = Math.ceil((now + SOON) * RATE) / RATE;
      }
      const source = new AudioBufferSourceNode(this.context, { buffer: part.buffer });
      source.connect(this.gain);
      source.start(this.free, skipped);
      this.played.push({ at: this.free, begin: part.begin + skipped, seconds: part.seconds - skipped, source });
      this.free += part.seconds - skipped;
    }
  }

  /** A gap is heard: the next part has come too late. */
  countGap() {
    this.underruns += 1;
    this.box.dataset.underruns = this.underruns;
  }

  tick() {
    if (!this.isOn) return;
    const isOver = this.isWhole && this.next === this.parts.length && this.context.currentTime >= this.free;
    if (isOver) {
      this.stop();
      this.onEnd();
    } else {
      this.onMove();
      // hidden pages get no animation frames, but keep playing
      if (document.hidden) setTimeout(() => this.tick(), 200);
      else requestAnimationFrame(() => this.tick());
    }
  }

  setLevel(level) {
    if (this.isOn) this.gain.gain.value = level;
  }

  stop() {
    if (!this.isOn) return;
    this.from = this.position;
    this.isOn = false;
    const now = this.context.currentTime;
    this.gain.gain.setTargetAtTime(0, now, FADE);
    for (const { source } of this.played) source.stop(now + 5 * FADE);
    this.played = [];
  }
}
