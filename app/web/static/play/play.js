// Records a prompt: keys, count-in and metronome. The take becomes a MIDI file, which is uploaded like
// any other.

import { give } from "../drop.js";
import { Keys, listenToMidi } from "./keys.js";
import { midiFile } from "./midi_file.js";
import { METRES, Take } from "./take.js";
import { Tones } from "./tones.js";

const AHEAD = 0.25; // seconds by which clicks are scheduled before they sound
const TICK_MS = 50;
const PATIENCE_MS = 120_000; // for the upload of a take
const HOW = "Play with the mouse or a finger, the keys A to ', or a MIDI keyboard.";

const counted = (amount, what) => `${amount} ${what}${amount === 1 ? "" : "s"}`;

/** Tells the player something; returns whether it has used it. */
const tell = (name, detail) => !document.dispatchEvent(new CustomEvent(name, { detail, cancelable: true }));

class Recorder {
  take = null;
  takes = 0;

  constructor(element) {
    this.part = (name) => element.querySelector(`[data-play="${name}"]`);
    const { part } = this;
    this.tones = new Tones();
    const heard = {
      onPress: (pitch, velocity, time) => {
        if (!this.sound(pitch, velocity)) this.tones.press(pitch, velocity);
        this.take?.press(pitch, velocity, time);
      },
      onRelease: (pitch, time) => {
        this.sound(pitch, 0);
        this.tones.release(pitch);
        this.take?.release(pitch, time);
      },
      onPedal: (value, time) => this.take?.setPedal(value, time),
      onChange: (text) => this.say(text),
    };
    this.keys = new Keys(part("keys"), {
      ...heard,
      onOctave: (range, canFall, canRise) => {
        part("range").textContent = range;
        part("lower").disabled = !canFall;
        part("higher").disabled = !canRise;
      },
    });
    part("open").addEventListener("click", () => this.open(part("panel").hidden));
    part("record").addEventListener("click", (event) => (this.take ? this.stop(event.timeStamp) : this.record()));
    part("lower").addEventListener("click", () => this.keys.setOctave(this.keys.octave - 1));
    part("higher").addEventListener("click", () => this.keys.setOctave(this.keys.octave + 1));
    part("midi").addEventListener("click", async () => this.say(await listenToMidi(heard)));
  }

  /** Has a key played by the synthesizer of the player, or released (velocity 0); returns whether it can. */
  sound(pitch, velocity) {
    return tell("played-key", { pitch, velocity, program: Number(this.part("instrument").value) });
  }

  open(isOpen) {
    const { part } = this;
    if (isOpen) this.sound(null, 0); // so that it is loaded
    if (!isOpen && this.take) this.leave();
    part("panel").hidden = !isOpen;
    part("open").setAttribute("aria-expanded", isOpen);
    this.keys.isOpen = isOpen;
    if (isOpen) {
      this.say(HOW);
      part("panel").scrollIntoView({ block: "nearest" });
    }
    else this.keys.letAllGo(performance.now());
  }

  say(text) {
    if (this.part("say").textContent !== text) this.part("say").textContent = text;
  }

  record() {
    const { part } = this;
    const tempo = Number(part("tempo").value);
    if (!part("tempo").validity.valid || !tempo) {
      this.say("The tempo is not a whole number from 40 to 240.");
      part("tempo").focus();
      return;
    }
    document.querySelector(".player.playing [data-part=play]")?.click(); // it would be in the way
    const clock = this.tones.wake();
    const click = part("click").value;
    const first = clock.currentTime + 0.15; // time of the first click
    const beat = 60 / tempo;
    const metre = METRES[part("metre").value];
    const until = performance.now() + 1000 * (first + metre.count * beat - clock.currentTime + this.tones.latency);
    const zero = click === "none" ? null : until;
    this.take = new Take({ tempo, zero, isQuantised: part("timing").value === "grid", metre });
    Object.assign(this, { clicks: click === "none" ? 0 : click === "count" ? metre.count : Infinity, clicked: 0, first, beat });
    this.show(true);
    this.timer = setInterval(() => this.tick(), TICK_MS);
    this.tick();
  }

  /** Schedules the next clicks, and says where the take is. */
  tick() {
    const { take, first, beat } = this;
    const { beats, count } = take.metre;
    for (; this.clicked < this.clicks; this.clicked += 1) {
      const at = first + this.clicked * beat;
      if (at > this.tones.context.currentTime + AHEAD) break;
      this.tones.click(at, this.clicked % beats === 0);
    }
    const ticks = take.zero === null ? null : take.ticksAt(performance.now());
    if (ticks === null) this.say("Recording: the first note begins the first bar.");
    else if (ticks < 0) this.say(`Count-in: ${Math.max(1, Math.min(count, Math.floor(count + ticks / take.metre.beat) + 1))}`);
    else this.say(`Recording: bar ${Math.floor(ticks / take.metre.bar) + 1}`);
    tell("recording", take.shown(ticks ?? 0)); // the player shows the notes
  }

  leave() {
    clearInterval(this.timer);
    const { take } = this;
    this.take = null;
    tell("recording", null);
    this.show(false);
    return take;
  }

  show(isRecording) {
    const button = this.part("record");
    button.classList.toggle("on", isRecording);
    button.lastElementChild.textContent = isRecording ? "Stop" : "Record";
    for (const name of ["tempo", "metre", "click", "timing"]) this.part(name).disabled = isRecording;
  }

  async stop(time) {
    const take = this.leave();
    const { notes, pedal, bars } = take.finish(time);
    if (!notes.length) {
      this.say("Nothing was played: press Record and play after the count-in.");
      return;
    }
    this.takes += 1;
    const name = `Recording ${this.takes}`;
    give(new File([midiFile({ notes, pedal, bars }, { ...take, program: Number(this.part("instrument").value) })], `${name}.mid`, { type: "audio/midi" }));
    this.say(`Recorded ${counted(notes.length, "note")} in ${counted(bars, "bar")}.`);
    const listen = document.querySelector("#write-listen input");
    if (listen && !listen.checked) listen.click();
    if (this.part("answer").checked) await this.answer(name);
  }

  /** Begins to continue the take, once the page has read it. */
  async answer(name) {
    for (const end = performance.now() + PATIENCE_MS; performance.now() < end && !this.take; ) {
      const isRead = document.querySelector(".player[data-phase=prompt] [data-part=title]")?.textContent === name;
      const go = document.querySelector("#controls button.go-music");
      if (isRead && go && !go.disabled) return go.click();
      await new Promise((resolve) => setTimeout(resolve, TICK_MS));
    }
  }
}

export function start({ element }) {
  new Recorder(element);
}
