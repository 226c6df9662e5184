// Sends what is played to a MIDI port, with clock, start and stop, in place of the sound of the browser. It is
// loaded when the user asks for it.

import { make } from "../dom.js";
import { BEND, FIRST_CHANNEL, ON, WIDTH, rowsOf } from "./score.js";

const AHEAD = 0.12; // seconds by which messages are handed to the browser before they sound
const LEAP_MS = 50; // more is no leap of the clock of the sound: it has stopped, or was moved
const DRIFT_MS = 0.02; // by which it may be slower in each step
const JUMP = 0.25; // seconds by which the position has moved if it was moved by hand
const CLOCKS = 24; // of MIDI in a quarter note
const [CLOCK, START, CONTINUE, STOP, PLACE] = [0xf8, 0xfa, 0xfb, 0xfc, 0xf2];
const DRUMS = 9; // their channel
const HAND = 15; // that of keys that are played on the page
const NONE = "No MIDI port is connected: plug in a device, or open a virtual port.";
const REFUSED = "The browser was not allowed to use MIDI: allow it in the settings of this page.";

export class MidiOut {
  port = null; // null: the browser sounds
  rows = new Float64Array(0);
  channels = []; // MIDI channel by track
  programs = new Map(); // by channel
  ends = []; // [second of the piece, channel, pitch] of notes that sound
  until = 0; // second of the piece up to which all was sent
  isRunning = false;
  began = 0; // time of the page at which the piece began, in milliseconds

  /** Asks for the ports and puts their list in place of a button; null if there is none, or it is not allowed. */
  static async of(sound, button, onError) {
    try {
      const access = await navigator.requestMIDIAccess();
      if (!access.outputs?.size) return onError(NONE) ?? null;
      sound.synth.load();
      return new MidiOut(sound, access, button, onError);
    } catch (error) {
      console.warn(error);
      return onError(REFUSED) ?? null;
    }
  }

  constructor(sound, access, button, onError) {
    Object.assign(this, { sound, access });
    this.list = make("select", { className: "player-output", "aria-label": "Output", title: button.title });
    button.replaceWith(this.list);
    this.list.addEventListener("change", () => this.choose(this.list.value));
    access.addEventListener?.("statechange", () => {
      const { port } = this;
      this.fill();
      if (port?.state !== "disconnected") return;
      this.port = null;
      this.choose("");
      onError(`${port.name} was unplugged: the browser sounds again.`);
    });
    this.fill();
    this.choose(this.list.options[1].value);
    this.list.focus();
  }

  fill() {
    const ports = [...this.access.outputs.values()].filter(({ state }) => state !== "disconnected");
    this.list.replaceChildren(make("option", { value: "", textContent: "This browser" }), ...ports.map(({ id, name }) => make("option", { value: id, textContent: name || "unnamed port" })));
    this.list.value = this.port?.id ?? "";
  }

  choose(id) {
    this.halt();
    this.port = this.access.outputs.get(id) ?? null;
    this.list.value = id;
    this.programs.clear();
    this.sound.synth.setLevel();
    this.sound.update();
  }

  /** Takes the tracks that the synthesizer plays; those that are silent are left out. */
  show(tracks, tempo) {
    const free = [...Array(16).keys()].filter((channel) => channel !== DRUMS && channel !== HAND);
    let used = 0;
    this.channels = tracks.map(({ drums }) => (drums ? DRUMS : free[used++ % free.length]));
    this.rows = rowsOf(tracks.map((track) => (track.gain ? track : { notes: [], controls: [] })), tempo);
    if (!this.port) return;
    tracks.forEach(({ program, drums }, index) => {
      const channel = this.channels[index];
      if (drums || this.programs.get(channel) === program) return;
      this.programs.set(channel, program);
      this.send([0xc0 | channel, program]);
    });
  }

  send(data, second) {
    const time = second === undefined ? 0 : this.began + (1000 * second) / this.rate;
    if (this.port?.state !== "disconnected") this.port?.send(data, Math.max(performance.now(), time));
  }

  get rate() {
    return this.sound.synth.told.rate || 1;
  }

  /** Reads the clock of the sound, which advances in leaps: the earliest beginning is the right one. */
  readClock(position) {
    const began = performance.now() - (1000 * position) / this.rate;
    this.began = Math.abs(began - this.began) < LEAP_MS ? Math.min(this.began + DRIFT_MS, began) : began;
  }

  key(pitch, velocity) {
    this.send([(velocity ? 0x90 : 0x80) | HAND, pitch, velocity]);
  }

  /** Called while music plays, and when it begins or ends: sends what sounds next. */
  step() {
    const { sound } = this;
    const { isPlaying, position, tempo } = sound;
    if (!this.port || !isPlaying) return this.halt();
    if (this.isRunning && (position < this.until - AHEAD - JUMP || position > this.until + JUMP)) this.halt();
    this.readClock(position);
    if (!this.isRunning) this.start(position);
    const stop = position + AHEAD;
    if (stop <= this.until) return;
    for (let clock = Math.ceil(tempo.beatAt(this.until) * CLOCKS - 1e-6); tempo.secondsAt(clock / CLOCKS) < Math.min(stop, tempo.seconds); clock += 1) this.send([CLOCK], tempo.secondsAt(clock / CLOCKS));
    const messages = [];
    this.ends = this.ends.filter(([second, channel, pitch]) => second >= stop || !messages.push([second, 0, [0x80 | channel, pitch, 0]]));
    const { rows } = this;
    for (let at = this.rowAt(this.until); at < rows.length && rows[at] < stop; at += WIDTH) {
      const [second, index, kind, value, velocity, end] = rows.subarray(at, at + WIDTH);
      const channel = this.channels[index - FIRST_CHANNEL];
      if (kind === ON) {
        const again = this.ends.findIndex(([, held, pitch]) => held === channel && pitch === value);
        if (again >= 0) messages.push([second, 0, [0x80 | channel, this.ends.splice(again, 1)[0][2], 0]]);
        messages.push([second, 2, [0x90 | channel, value, velocity]]);
        if (end < stop) messages.push([end, 0, [0x80 | channel, value, 0]]);
        else this.ends.push([end, channel, value]);
      } else if (kind === BEND) messages.push([second, 1, [0xe0 | channel, (value + 8192) & 127, (value + 8192) >> 7]]);
      else messages.push([second, 1, [0xb0 | channel, kind, value]]);
    }
    messages.sort((one, other) => one[0] - other[0] || one[1] - other[1]);
    for (const [second, , data] of messages) this.send(data, second);
    this.until = stop;
  }

  rowAt(second) {
    let at = 0;
    while (at < this.rows.length && this.rows[at] < second) at += WIDTH;
    return at;
  }

  start(position) {
    [this.isRunning, this.until] = [true, position];
    const sixteenth = Math.round(4 * this.sound.tempo.beatAt(position));
    if (sixteenth < 1) return this.send([START], position);
    this.send([PLACE, sixteenth & 127, (sixteenth >> 7) & 127], position);
    this.send([CONTINUE], position);
  }

  halt() {
    if (!this.isRunning) return;
    this.isRunning = false;
    for (const [, channel, pitch] of this.ends) this.send([0x80 | channel, pitch, 0], this.until);
    this.ends = [];
    this.port?.send([STOP], performance.now() + 1000 * AHEAD);
    for (const channel of new Set(this.channels)) this.port?.send([0xb0 | channel, 123, 0], performance.now() + 1000 * AHEAD);
  }
}
