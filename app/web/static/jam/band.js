// A jam in time, without elements of the page: which bar sounds, which one the server is asked for, and what
// sounds in its place if it is late. The clock is that of the sound.

const UNITS_PER_BEAT = 96; // as in frames.py
const STEPS_PER_BEAT = 12; // of the grid of bars
const SETTLED_MS = 30; // a chord is read so long after its last key
const SOON = 0.06; // seconds: what sounds earlier is not changed any more
const GRACE = 0.15; // seconds after a line in which a chord still counts as played on it
const SIXTEENTH = STEPS_PER_BEAT / 4;
const SHOWN = 48; // bars before the present one that the roll shows
const ROOM = 8; // empty bars that it shows after the last one
const FADE = 1.5; // seconds after the last bar
const LEAST_LEAD = 0.3; // seconds before a bar line at which a bar under played chords is asked for
const AHEAD = 2; // bars that are written ahead if their chords are known
const LOST = "The connection to the server was lost: what was played is kept.";

const shift = (notes, by) => notes.replace(/(\d+)(,[^;]*;)/g, (_, on, rest) => Number(on) + by + rest);
const notesOf = (text) =>
  [...text.matchAll(/(\d+),(\d+),(\d+),(\d+);/g)].map(([, on, length, pitch, velocity]) => ({
    ...{ on: on / UNITS_PER_BEAT, stop: (Number(on) + Number(length)) / UNITS_PER_BEAT },
    ...{ pitch: Number(pitch), velocity: Number(velocity) },
  }));

export class Band {
  bars = []; // by number: {tracks, chords, asked}
  spare = null; // notes of each track that sound if the next bar is late
  current = -1; // the bar that sounds
  last = null; // number of the last bar
  late = 0;
  unsaid = []; // [number, chord] of late bars of which the server does not know
  chord = null; // played last
  askedAt = 0; // time at which a bar was asked for that has not come; 0: none
  waits = []; // seconds that the last bars took
  held = new Set(); // keys
  struck = new Set(); // keys since the last chord was read
  struckAt = 0;
  early = null; // a chord that was played before the band was ready
  isEnding = false;
  isOver = false;
  energy = 0.5;
  grain = "bar"; // from where on chords are followed

  /** `settings`: what the server is asked for; `onSay(text)`, `onChange()`, `onOver()`. */
  constructor(player, root, settings, calls) {
    Object.assign(this, { player, root, settings, ...calls });
    const [numerator, denominator] = settings.metre.split("/").map(Number);
    this.beats = (4 * numerator) / denominator;
    this.seconds = (this.beats * 60) / settings.tempo;
    const { tempo, metre, style, chart } = settings;
    this.about = [`${tempo} bpm`, metre, style, chart?.replace("?", "")].filter(Boolean).join(" · ");
    this.waitsForChord = settings.source === "played";
    this.hearing = Promise.resolve(); // chords are sent one after the other
  }

  async begin() {
    const { sound } = this.player;
    sound.pause();
    sound.onLive = () => this.step();
    this.leaving = new AbortController();
    try {
      const { signal } = this.leaving;
      const answer = await fetch(`${this.root}/jam/begin`, { method: "POST", body: JSON.stringify(this.settings), signal });
      if (!answer.ok) throw new Error((await answer.json()).error);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let [text, step] = ["", null]; !(step = await reader.read()).done; ) {
        const events = (text + step.value).split("\n\n");
        text = events.pop();
        for (const event of events) if (event.startsWith("data: ")) this.accept(JSON.parse(event.slice(6)));
      }
      if (this.last === null) this.finish(LOST);
    } catch (error) {
      if (error.name !== "AbortError") this.finish(this.id ? LOST : error.message);
    }
  }

  async post(body) {
    const answer = await fetch(`${this.root}/jam/${this.id}`, { method: "POST", body: JSON.stringify(body) });
    if (answer.status === 400) this.onSay((await answer.json()).error);
    return answer.ok ? answer.json() : null;
  }

  accept(event) {
    if (event.error) this.finish(event.error);
    if (event.said) this.onSay(event.said);
    if (event.jam) {
      [this.id, this.tracks] = [event.jam, event.tracks];
      if (this.early) this.hear(this.early);
      this.onSay(this.waitsForChord && !this.early ? "Play a chord: the band begins with it." : "");
      this.step();
    }
    if (event.tracks && event.spare) this.take(event);
  }

  take(bar) {
    this.waits = [...this.waits, (performance.now() - this.askedAt) / 1000].slice(-8);
    this.askedAt = 0;
    const number = bar.last ? Math.max(bar.bar, this.current + 1) : bar.bar;
    if (number > this.current) [this.bars[number], this.spare, this.spareChord] = [bar, bar.spare, bar.following];
    if (bar.last) this.last = number;
    if (this.waitsForChord && bar.asked !== this.chord && !bar.last) this.hear({ chords: this.chord });
    this.show();
    if (this.current < 0 && !this.player.sound.isPlaying) this.player.sound.play(0);
  }

  press(pitch) {
    this.held.add(pitch);
    this.struck.add(pitch);
    this.struckAt = performance.now();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.settle(), SETTLED_MS);
  }

  release(pitch) {
    this.held.delete(pitch);
  }

  /** Reads the chord that was struck, from its keys and those that are held: as `PlayedChord` in follow.py. */
  settle() {
    if (!this.struck.size || performance.now() < this.struckAt + SETTLED_MS - 1) return;
    const [isAlone, top] = [this.struck.size === 1, Math.max(...this.struck)];
    const below = [...this.held].filter((key) => !this.struck.has(key));
    const keys = [...new Set([...this.held, ...this.struck])];
    this.struck.clear();
    const isChord = (all) => new Set(all.map((key) => key % 12)).size >= 3;
    const isMelody = isAlone && isChord(below) && top > Math.max(...below);
    if (isChord(keys) && !isMelody) this.hear({ keys });
  }

  /** Tells the server a chord, and takes the bars that it moves to it. */
  hear(chord) {
    if (!this.id) return (this.early = chord);
    this.hearing = this.hearing.then(async () => {
      const answer = await this.post({ ...chord, ...this.place() }).catch(() => null);
      if (!answer?.chords || this.isOver) return;
      this.chord = answer.chords;
      for (const [number, bar] of Object.entries(answer.bars)) if (number > this.current - 1 && this.bars[number]) this.bars[number] = { ...this.bars[number], shifted: null, ...bar };
      if (answer.spare && this.last === null) [this.spare, this.spareChord] = [answer.spare, answer.chords];
      if (this.current >= 0) this.show();
      this.step();
    });
  }

  /** From where on a chord is followed that is played now: {bar, step}. */
  place() {
    if (this.current < 0) return { bar: 0, step: 0 };
    const length = this.beats * STEPS_PER_BEAT;
    const now = ((this.player.sound.position + SOON) / this.seconds) * length;
    const bar = Math.floor(now / length);
    const since = now - bar * length;
    let grain = { bar: length, half: length / 2, beat: STEPS_PER_BEAT }[this.grain];
    if (((since % grain) / length) * this.seconds < GRACE + SOON) grain = SIXTEENTH;
    const step = Math.ceil(Math.ceil(since / grain) * grain);
    return step < length ? { bar, step } : { bar: bar + 1, step: 0 };
  }

  /** Called about fifty times a second while music plays. */
  step() {
    const { sound } = this.player;
    if (this.isOver || !this.id) return;
    this.settle();
    if (this.bars.length && (sound.isPlaying || sound.position > this.seconds / 2)) {
      const current = Math.floor(sound.position / this.seconds + 1e-6);
      while (this.current < current && (this.last === null || this.current < this.last)) this.enter(this.current + 1);
      if (this.last !== null && sound.position >= (this.last + 1) * this.seconds + FADE) return this.finish("");
    }
    this.ask();
    this.onChange();
  }

  /** A bar begins; one that has not come is replaced. */
  enter(number) {
    this.current = number;
    if (!this.bars[number]) {
      this.late += 1;
      this.unsaid.push([number, this.spareChord]);
      this.bars[number] = { tracks: this.spare, chords: this.spareChord ?? this.bars[number - 1].chords };
    }
    this.show();
  }

  /** Asks for the next bar if it is time. */
  ask() {
    if (this.askedAt || this.last !== null || (this.waitsForChord && !this.chord)) return;
    const next = this.bars.length;
    const lead = Math.min(this.seconds, Math.max(LEAST_LEAD, 0.1 + 1.3 * Math.max(0, ...this.waits)));
    if (this.waitsForChord ? next && this.player.sound.position < next * this.seconds - lead : next > this.current + AHEAD) return;
    this.askedAt = performance.now();
    this.post({ next, energy: this.energy, late: this.unsaid, last: this.isEnding }).catch(() => null);
    this.unsaid = [];
  }

  /** Gives the player what is written, and to its sound also what replaces the next bar. */
  show() {
    const { player, bars, beats, seconds } = this;
    const first = Math.max(0, this.current - SHOWN);
    const texts = bars.slice(first).map((bar, at) => (bar.shifted ??= bar.tracks.map((notes) => shift(notes, (first + at) * beats * UNITS_PER_BEAT))));
    const tracks = this.tracks.map((track, index) => ({ ...track, hue: index, id: index, notes: texts.map((bar) => bar[index]).join("") }));
    const count = bars.length + ROOM;
    const lines = Array.from({ length: count + 1 }, (_, bar) => `${bar * beats * UNITS_PER_BEAT};`).join("");
    const end = count * beats;
    const timeline = { bars: lines, tempos: `0,0;${end * UNITS_PER_BEAT},${Math.round(count * seconds * 1000)};`, end, seconds: count * seconds, beats: true };
    const spare = this.last === null ? [0, 1].flatMap((at) => this.spare.map((notes) => notesOf(shift(notes, (bars.length + at) * beats * UNITS_PER_BEAT)))) : [];
    player.sound.spare = new Map(this.tracks.map((_, index) => [index, spare.filter((_, at) => at % this.tracks.length === index).flat()]));
    const sheet = { sections: [], chords: bars.map(({ chords }) => chords) };
    player.live({ job: this.id, phase: "composing", busy: false, title: "Jam", subtitle: this.about, variations: [{ tracks, timeline, sheet }] });
  }

  /** Ends with a cadence in the next bar that is not asked for yet; or at once, if that was said before. */
  end() {
    if (this.isEnding || this.current < 0) return this.finish("");
    this.isEnding = true;
  }

  /** Ends at once. */
  finish(text) {
    if (this.isOver) return;
    this.isOver = true;
    const { sound } = this.player;
    sound.onLive = null;
    sound.pause();
    this.leaving.abort();
    if (this.current >= 0) this.player.live(null);
    this.onOver(text);
  }
}
