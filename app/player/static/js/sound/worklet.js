// Plays notes in the thread of the audio hardware, so that a busy page or a hidden one causes no gap. It keeps
// the whole piece, so that a change of position, tempo or instrument is heard in the next block of samples.

import { SoundBankLoader, SpessaSynthProcessor } from "../vendor/spessasynth.js";
import { BEND, FIRST_CHANNEL, HAND, ON, WIDTH } from "./score.js";

const TAIL = 2; // seconds after the end in which notes may fade
const CHASED = 0.1; // seconds: a note that sounds so long after a new position is struck there
const TICK_BLOCKS = 8; // about 20 ms
const DEFAULTS = [[0, 0], [7, 100], [10, 64], [11, 127], [64, 0], [101, 0], [100, 0], [6, 2]]; // controllers

class Player extends AudioWorkletProcessor {
  rows = new Float64Array(0); // see score.js
  next = 0; // row
  position = 0; // seconds of the piece, and
  end = 0; // its end
  limit = Infinity; // the music is written up to here
  loop = null; // {from, to} in seconds
  rate = 1;
  semitones = 0;
  isPlaying = false;
  blocks = 0; // of samples that were played
  isHeld = false; // waits for music that is not written yet
  laps = 0;
  turn = 0; // number of the latest start or stop by the page
  ends = new Map(); // seconds of the piece at which a note ends, by channel and key, and
  fades = new Map(); // samples until one ends that was touched
  programs = [];

  constructor() {
    super();
    this.engine = new SpessaSynthProcessor(sampleRate, { effectsEnabled: false, eventsEnabled: false });
    this.engine.onMissingPreset = () => undefined;
    this.port.onmessage = ({ data: [name, ...values] }) => {
      try {
        this[name](...values);
      } catch (error) {
        this.port.postMessage({ error: String(error) });
      }
    };
  }

  async load(font) {
    try {
      await this.engine.processorInitialized;
      this.engine.soundBankManager.addSoundBank(SoundBankLoader.fromArrayBuffer(font), "main");
      this.setChannel(HAND, { program: 0 });
      this.port.postMessage({ isLoaded: true });
    } catch (error) {
      this.port.postMessage({ error: String(error) });
    }
  }

  /** Takes the piece; `position` is where it was at a time of the clock, if its seconds have changed. */
  show({ channels, ...score }, position, time) {
    Object.assign(this, score); // rows, end, limit, rate, semitones
    if (position !== undefined) {
      const before = this.position;
      this.position = position + (this.isPlaying && !this.isHeld ? (currentTime - time) * this.rate : 0);
      for (const [key, off] of this.ends) this.ends.set(key, off + this.position - before);
    }
    this.next = this.rowAt(this.position);
    channels.forEach((channel, index) => this.setChannel(FIRST_CHANNEL + index, channel));
    this.tell();
  }

  setChannel(index, { program = 0, drums = false, gain = 1, volume }) {
    const { engine } = this;
    while (engine.midiChannels.length <= index) engine.createMIDIChannel();
    const channel = engine.midiChannels[index];
    const known = this.programs[index];
    if (known?.program !== program || known.drums !== drums) {
      this.programs[index] = { program, drums };
      if (channel.drumChannel !== drums) channel.setDrums(drums);
      engine.programChange(index, program);
    }
    if (channel.systemParameters.gain !== gain) channel.setSystemParameter("gain", gain);
    if (volume !== undefined) engine.controllerChange(index, 7, volume);
  }

  setRate(rate, semitones) {
    Object.assign(this, { rate, semitones });
    this.tell();
  }

  setLoop(loop) {
    this.loop = loop;
  }

  play(turn, position) {
    [this.turn, this.isPlaying, this.isHeld] = [turn, true, false];
    this.move(position);
  }

  pause(turn = this.turn) {
    this.turn = turn;
    this.isPlaying = this.isHeld = false;
    this.silence();
    this.tell();
  }

  /** Goes to a second of the piece: controllers have the values from there, and long notes sound on. */
  move(position) {
    this.silence();
    this.position = position;
    this.next = this.rowAt(position);
    if (this.isPlaying) this.chase();
    this.tell();
  }

  chase() {
    const { rows, next, position, programs } = this;
    const last = new Map();
    for (let channel = FIRST_CHANNEL; channel < programs.length; channel += 1) {
      for (const [controller, value] of DEFAULTS) this.control(channel, controller, value);
      this.control(channel, BEND, 0);
    }
    const notes = [];
    for (let at = 0; at < next * WIDTH; at += WIDTH) {
      const [, channel, kind, value, , end] = rows.subarray(at, at + WIDTH);
      if (kind !== ON) last.set(channel * 1000 + kind, [channel, kind, value]);
      else if (end > position + CHASED) notes.push(at);
    }
    for (const values of last.values()) this.control(...values);
    for (const at of notes) if (!programs[rows[at + 1]]?.drums) this.strike(at);
  }

  silence() {
    for (const [key] of this.ends) this.engine.noteOff(key >> 7, key & 127);
    this.ends.clear();
    for (let channel = FIRST_CHANNEL; channel < this.programs.length; channel += 1) this.engine.controllerChange(channel, 64, 0);
  }

  control(channel, kind, value) {
    if (kind === BEND) this.engine.pitchWheel(channel, value + 8192);
    else this.engine.controllerChange(channel, kind, value);
    if (kind === 0 && !this.programs[channel]?.drums) this.engine.programChange(channel, this.programs[channel]?.program ?? 0);
  }

  strike(at) {
    const [, channel, , pitch, velocity, end] = this.rows.subarray(at, at + WIDTH);
    const played = this.programs[channel]?.drums ? pitch : Math.max(0, Math.min(pitch + this.semitones, 127));
    const key = channel * 128 + played;
    if (this.ends.has(key)) this.engine.noteOff(channel, played);
    this.engine.noteOn(channel, played, velocity);
    this.ends.set(key, end);
  }

  /** A key of a channel is pressed by hand, for some seconds or until it is released. */
  press(channel, pitch, velocity, seconds = 60) {
    this.release(channel, pitch);
    this.engine.noteOn(channel, pitch, velocity);
    this.fades.set(channel * 128 + pitch, seconds * sampleRate);
  }

  release(channel, pitch) {
    if (this.fades.delete(channel * 128 + pitch)) this.engine.noteOff(channel, pitch);
  }

  rowAt(position) {
    const { rows } = this;
    let low = 0;
    let high = rows.length / WIDTH;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (rows[middle * WIDTH] < position) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  advance(seconds) {
    const { rows, loop } = this;
    if (loop && this.position < loop.to && this.position + seconds >= loop.to) {
      this.laps += 1;
      this.move(loop.from);
    }
    const stop = Math.min(this.position + seconds, this.limit);
    if (this.isHeld !== this.position >= this.limit) {
      this.isHeld = !this.isHeld;
      this.tell();
    }
    for (; this.next < rows.length / WIDTH && rows[this.next * WIDTH] < stop; this.next += 1) {
      const at = this.next * WIDTH;
      if (rows[at + 2] === ON) this.strike(at);
      else this.control(rows[at + 1], rows[at + 2], rows[at + 3]);
    }
    this.position = Math.max(this.position, stop);
    for (const [key, end] of this.ends) {
      if (end > this.position) continue;
      this.engine.noteOff(key >> 7, key & 127);
      this.ends.delete(key);
    }
    if (this.position >= this.end + TAIL || (this.position >= this.end && !this.engine.voiceCount)) this.pause();
  }

  tell() {
    const { turn, position, rate, isPlaying, isHeld, laps } = this;
    this.port.postMessage({ turn, time: currentTime, position, rate: isPlaying && !isHeld ? rate : 0, isPlaying, laps });
  }

  process(_, [[left, right]]) {
    if (this.isPlaying) this.advance((left.length / sampleRate) * this.rate);
    if (this.isPlaying && (this.blocks += 1) % TICK_BLOCKS === 0) this.tell(); // hidden pages have no other clock
    for (const [key, samples] of this.fades) {
      if (samples > left.length) this.fades.set(key, samples - left.length);
      else this.release(key >> 7, key & 127);
    }
    this.engine.process(left, right);
    return true;
  }
}

registerProcessor("relpe-player", Player);
