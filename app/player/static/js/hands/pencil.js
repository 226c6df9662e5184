// Draws new notes on the roll: a press sets where a note begins and its key, dragging its length.

import { write } from "../dom.js";

export class Pencil {
  isOn = false;
  note = null; // that is drawn now: {id, drums, on, off, pitch}
  sent = null; // that is on its way

  /** `onTouch(id, pitch, velocity)`: a note is to be heard; `onAdd(row)`: [id, onset, pitch, length, velocity], times in quarter notes. */
  constructor(part, roll, { onTouch, onAdd }) {
    Object.assign(this, { part, roll, onTouch, onAdd });
  }

  set(isOn) {
    this.isOn = isOn;
    this.roll.canvas.classList.toggle("draws", isOn);
  }

  /** `rows`: those of the tracks, of which one gets the notes; drums are drawn in their own lane. */
  show(rows) {
    const track = this.part("note-track");
    const options = rows.filter(({ drums }) => !drums).map(({ id, name }) => [String(id), name]);
    if (JSON.stringify(options) !== this.built) {
      const before = track.value;
      this.built = JSON.stringify(options);
      track.replaceChildren(...options.map(([id, name]) => new Option(name, id)));
      if (options.some(([id]) => id === before)) track.value = before;
    }
    track.parentElement.hidden = options.length < 2;
    this.rows = rows;
    this.sent = null;
  }

  /** The track of the notes that were selected last gets the next ones; the loudness of new notes is theirs. */
  follow(picked) {
    if (!picked.length) return;
    const { layer } = picked[0];
    if (!layer.drums) this.part("note-track").value = layer.id;
    const mean = picked.reduce((sum, { note }) => sum + note.velocity, 0) / picked.length;
    this.part("note-velocity").value = Math.round(mean);
    this.say();
  }

  get velocity() {
    return Number(this.part("note-velocity").value);
  }

  say() {
    write(this.part("note-velocity-value"), this.velocity);
  }

  beatOf(event, step) {
    return Math.max(0, Math.floor(this.roll.beatAt(event) / step + 0.001) * step);
  }

  /** Begins a note; returns whether there is a track for it. */
  start(event, step) {
    const key = this.roll.keyAt(event.offsetY);
    const row = this.rows.find(({ id, drums }) => (key.drums ? drums : String(id) === this.part("note-track").value));
    if (!row || key.pitch === undefined) return false;
    const on = this.beatOf(event, step);
    this.note = { id: row.id, drums: key.drums, on, off: on + step, pitch: key.pitch, pointer: event.pointerId };
    this.onTouch(row.id, key.pitch, this.velocity);
    this.roll.request();
    return true;
  }

  drag(event, step) {
    const { note } = this;
    if (event.pointerId !== note.pointer) return;
    note.off = Math.max(note.on + step, this.beatOf(event, step) + step);
    this.roll.request();
  }

  release() {
    const { note } = this;
    this.note = null;
    this.add(note);
  }

  /** Adds a note at a beat by a key, at the height of the selected notes or in the middle of the roll. */
  addAt(beat, picked, step) {
    const last = picked.at(-1);
    const { roll } = this;
    const row = this.rows.find(({ id }) => (last ? id === last.layer.id : String(id) === this.part("note-track").value)) ?? this.rows[0];
    if (!row) return;
    const pitch = last?.note.pitch ?? (row.drums ? roll.drums[0] : Math.round((roll.low + roll.high) / 2));
    const on = Math.floor(beat / step + 0.001) * step;
    this.onTouch(row.id, pitch, this.velocity);
    this.add({ id: row.id, drums: row.drums, on, off: on + 4 * step, pitch });
  }

  add(note) {
    const { id, on, off, pitch } = note;
    if (this.onAdd([id, on, pitch, off - on, this.velocity])) this.sent = note;
    this.roll.request();
  }

  /** Notes that are not part of the piece yet. */
  draw(pen) {
    const { roll } = this;
    for (const note of [this.note, this.sent]) {
      if (!note) continue;
      const [left, top, width, height] = roll.tiles.placer(note, (beat) => roll.x(beat))({ ...note, velocity: this.velocity }, note.off);
      pen.fillStyle = roll.colours.accent;
      pen.fillRect(left, top, width, height);
      pen.strokeRect(left - 1.5, top - 1.5, width + 3, height + 3);
    }
  }
}
