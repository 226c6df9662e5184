// A take: the notes that are played between Record and Stop, in ticks. Without elements of the page.

export const TICKS = 480; // in a quarter note

/** Beats in a bar, ticks in a beat and in a bar, and beats of the count-in: one bar, or two short ones. */
const metre = (numerator, denominator, beat, count) => {
  const bar = (numerator * 4 * TICKS) / denominator;
  return { numerator, denominator, beat, bar, beats: bar / beat, count };
};
export const METRES = {
  "4/4": metre(4, 4, TICKS, 4),
  "3/4": metre(3, 4, TICKS, 3),
  "2/4": metre(2, 4, TICKS, 4),
  "6/8": metre(6, 8, 1.5 * TICKS, 4),
};
const SIXTEENTH = TICKS / 4;
const EARLY = SIXTEENTH / 2; // a note that is at most so early belongs to the first beat
const OVERHANG = TICKS / 2; // a note that sounds at most so far into another bar does not need it

export class Take {
  notes = []; // {on, off, pitch, velocity} in ticks; no `off` while the key is down
  pedal = []; // {tick, value}

  /**
   * `tempo`: beats of the metre in a minute; `zero`: time of the first beat in milliseconds; null: the first
   * note is the first beat; `metre`: one of METRES.
   */
  constructor({ tempo, zero, isQuantised, metre }) {
    Object.assign(this, { tempo, zero, isQuantised, metre });
  }

  /** Ticks since the first beat; negative during the count-in. */
  ticksAt(time) {
    return ((time - this.zero) * this.tempo * this.metre.beat) / 60_000;
  }

  press(pitch, velocity, time) {
    this.zero ??= time;
    const on = this.ticksAt(time);
    if (on < -EARLY) return;
    this.release(pitch, time); // a key that is struck again without being released
    this.notes.push({ on, pitch, velocity });
  }

  release(pitch, time) {
    const note = this.notes.find((one) => one.pitch === pitch && one.off === undefined);
    if (note) note.off = this.ticksAt(time);
  }

  setPedal(value, time) {
    if (this.zero !== null) this.pedal.push({ tick: Math.max(0, Math.round(this.ticksAt(time))), value });
  }

  /** What was played until now, in quarter notes: {notes, bar, now}; keys that are down sound until now. */
  shown(ticks) {
    const notes = this.notes.map(({ on, off = ticks, pitch, velocity }) => ({ on: Math.max(0, on / TICKS), off: Math.max(on + 1, off) / TICKS, pitch, velocity }));
    return { notes, bar: this.metre.bar / TICKS, now: Math.max(0, ticks / TICKS) };
  }

  /** The take as a file is to contain it, in whole bars; bars before the first note are left out. */
  finish(time) {
    for (const { pitch } of this.notes) this.release(pitch, time);
    const grid = this.isQuantised ? SIXTEENTH : 1;
    const seen = new Set();
    const notes = [];
    for (const { on, off, pitch, velocity } of this.notes) {
      const start = Math.max(0, Math.round(on / grid) * grid);
      const key = `${start}/${pitch}`;
      if (seen.has(key)) continue;
      seen.add(key);
      notes.push({ on: start, off: start + Math.max(grid, Math.round((off - on) / grid) * grid), pitch, velocity });
    }
    notes.sort((a, b) => a.on - b.on || a.pitch - b.pitch);
    if (!notes.length) return { notes, pedal: [], bars: 0 };
    const { bar } = this.metre;
    const skipped = Math.floor(notes[0].on / bar) * bar;
    const lastOff = Math.max(...notes.map(({ off }) => off));
    const end = Math.max(Math.floor(notes.at(-1).on / bar) + 1, Math.ceil((lastOff - OVERHANG) / bar)) * bar;
    return {
      notes: notes.map((note) => ({ ...note, on: note.on - skipped, off: Math.min(note.off, end) - skipped })),
      pedal: this.pedal.filter(({ tick }) => tick >= skipped && tick <= end).map(({ tick, value }) => ({ tick: tick - skipped, value })),
      bars: (end - skipped) / bar,
    };
  }
}
