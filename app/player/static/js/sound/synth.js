// The synthesizer in the browser: it plays what the roll shows with the SoundFont of the server, at once. It is
// loaded when there is music for the first time. Its sound is made in worklet.js.

import { energyOf, rowsOf } from "./score.js";

const REST_MS = 20_000; // after which a silent sound device is let go
const GAIN = 1.2; // of music with the energy 1: about the loudness of the rendered sound
const GAINS = [0.3, 4];
const EASE_SECONDS = 0.02; // in which the volume changes
const NOT_HERE = "This browser lets no page make sound by itself at this address (it does at https and localhost)";
const NO_FONT = "This server has no SoundFont that browsers can load";
const NOT_LOADED = "The instruments could not be loaded";

export class Synth {
  state = "none"; // none, loading, ready or failed
  share = 0; // of the SoundFont that has come
  why = ""; // it failed
  loudness = GAIN; // factor of this piece
  turn = 0; // number of the latest start or stop
  told = { time: 0, position: 0, rate: 0, isPlaying: false, laps: 0 }; // by the worklet

  /** `font`: address of the SoundFont; null: it is not offered. `onChange()`: the state or what is played has changed. */
  constructor(font, { level, onChange }) {
    Object.assign(this, { font, level, onChange });
  }

  get isPlaying() {
    return this.told.isPlaying;
  }

  get position() {
    const { time, position, rate } = this.told;
    return position + Math.max(0, this.context.currentTime - time) * rate;
  }

  /** Loads what is needed, once. */
  async load() {
    if (this.state !== "none") return;
    this.state = "loading";
    try {
      this.context = new AudioContext({ latencyHint: "interactive" });
      if (!this.font) throw new Error(NO_FONT);
      if (!this.context.audioWorklet) throw new Error(NOT_HERE);
      const [font] = await Promise.all([this.fetch(this.font), this.context.audioWorklet.addModule(new URL("worklet.js", import.meta.url))]);
      this.node = new AudioWorkletNode(this.context, "relpe-player", { numberOfInputs: 0, outputChannelCount: [2] });
      this.gain = new GainNode(this.context);
      const limiter = new DynamicsCompressorNode(this.context, { threshold: -3, knee: 0, ratio: 20, attack: 0.001, release: 0.1 });
      this.node.connect(this.gain).connect(limiter).connect(this.context.destination);
      this.setLevel();
      await this.start(font);
      this.state = "ready";
      this.rest();
    } catch (error) {
      console.warn(error);
      [this.state, this.why] = ["failed", [NOT_HERE, NO_FONT].includes(error.message) ? error.message : NOT_LOADED];
    }
    this.onChange();
  }

  async fetch(address) {
    const answer = await fetch(address);
    if (!answer.ok) throw new Error(`${address}: ${answer.status}`);
    const total = Number(answer.headers.get("Content-Length"));
    const parts = [];
    let size = 0;
    for (let reader = answer.body.getReader(), step; !(step = await reader.read()).done; this.onChange()) {
      parts.push(step.value);
      size += step.value.length;
      this.share = total ? size / total : 0;
    }
    return new Blob(parts).arrayBuffer();
  }

  /** Hands the SoundFont to the worklet; resolves when notes can be played. */
  start(font) {
    return new Promise((resolve, reject) => {
      this.node.onprocessorerror = () => reject(new Error("the worklet has failed"));
      this.node.port.onmessage = ({ data }) => {
        if (data.error) return reject(new Error(data.error));
        if (data.isLoaded) return resolve();
        if (data.turn !== this.turn) return; // it had not heard the latest message
        this.told = data;
        if (!data.isPlaying) this.rest();
        this.onChange();
      };
      this.node.port.postMessage(["load", font], [font]);
    });
  }

  send(...message) {
    this.node.port.postMessage(message);
  }

  wake() {
    clearTimeout(this.timer);
    this.context?.resume();
  }

  rest() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.told.isPlaying || this.context.suspend(), REST_MS);
  }

  /**
   * `tracks`: as for `rowsOf`, with {program, drums, gain, volume} of each; `end` and `limit` in seconds;
   * `beat`: where the position stays if the tempo has changed.
   */
  show({ tracks, tempo, end, limit, rate, semitones }, beat) {
    const channels = tracks.map(({ program, drums, gain, volume }) => ({ program, drums, gain, volume }));
    const score = { rows: rowsOf(tracks, tempo), channels, end, limit, rate, semitones };
    this.loudness = Math.max(GAINS[0], Math.min(GAIN / Math.sqrt(energyOf(tracks, tempo) || 1), GAINS[1]));
    this.setLevel();
    const moved = beat === undefined ? [] : [tempo.secondsAt(beat), this.context.currentTime];
    this.node.port.postMessage(["show", score, ...moved], [score.rows.buffer]);
  }

  play(second) {
    this.told = { ...this.told, time: this.context.currentTime, position: second, isPlaying: true, rate: 0 };
    this.wake();
    this.turn += 1;
    this.send("play", this.turn, second);
  }

  pause() {
    this.told = { ...this.told, position: this.position, rate: 0, isPlaying: false };
    this.turn += 1;
    this.send("pause", this.turn);
  }

  setLevel() {
    this.gain?.gain.setTargetAtTime(this.loudness * this.level(), this.context.currentTime, EASE_SECONDS);
  }

  /** A key is pressed by hand. */
  press(channel, pitch, velocity, seconds) {
    this.wake();
    this.send("press", channel, pitch, velocity, seconds);
    this.rest();
  }
}
