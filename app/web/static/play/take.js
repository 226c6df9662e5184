// A take: the notes that are played between Record and Stop, in ticks. Without elements of the page.

export const TICKS = 480; // in a quarter note
export const BAR = 4 * TICKS;
const SIXTEENTH = TICKS / 4;
const EARLY = SIXTEENTH / 2; // a note that is at most so early belongs to the first beat
const OVERHANG = TICKS / 2; // a note that sounds at most so far into another bar does not need it

export class Take {
  notes = []; // {on, off, pitch, velocity} in ticks; no `off` while the key is down
  pedal = []; // {tick, value}

  /** `zero`: time of the first beat in milliseconds; null: the first note is the first beat. */
  constructor({ tempo, zero, isQuantised }) {
    Object.assign(this, { tempo, zero, isQuantised });
  }

  /** Ticks since the first beat; negative during the count-in. */
  ticksAt(time) {
    return ((time - this.zero) * this.tempo * TICKS) / 60_000;
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
    const skipped = Math.floor(notes[0].on / BAR) * BAR;
    const lastOff = Math.max(...notes.map(({ off }) => off));
    const end = Math.max(Math.floor(notes.at(-1).on / BAR) + 1, Math.ceil((lastOff - OVERHANG) / BAR)) * BAR;
    return {
      notes: notes.map((note) => ({ ...note, on: note.on - skipped, off: Math.min(note.off, end) - skipped })),
      pedal: this.pedal.filter(({ tick }) => tick >= skipped && tick <= end).map(({ tick, value }) => ({ tick: tick - skipped, value })),
      bars: (end - skipped) / BAR,
    };
  }
}
