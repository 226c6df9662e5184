// Notes are selected on the roll, moved, lengthened, made louder and deleted, by mouse, finger or keys. The server changes
// the piece and sends it back; until then, the roll shows outlines where the notes will be.

import { on } from "../dom.js";
import { UNITS_PER_BEAT, lowerBound } from "../roll/notes.js";

const STEP = 0.25; // quarter notes: a sixteenth
const FINE_STEP = 1 / 24; // with Alt: a step of the model's grid
const NEAR = 4; // pixels around a note that belong to it
const EDGE = 7; // pixels at the end of a note by which it is lengthened
const MOST_HEARD = 6; // notes that are played when they are touched
const SEND_MS = 500; // delay between the last key and the edit

const unitsOf = (beats) => Math.round(beats * UNITS_PER_BEAT);
const keyOf = (id, onset, pitch) => `${id}/${onset}/${pitch}`;
const NO_CHANGE = { later: 0, higher: 0, longer: 0 }; // quarter notes and semitones

export class Editor {
  isOn = false;
  chosen = new Set(); // keys of the selected notes
  change = NO_CHANGE; // not sent yet, and
  sent = NO_CHANGE; // on its way
  grip = null; // of a drag
  wanted = null; // keys to select when the edited piece comes

  /**
   * `onEdit(edit)` sends an edit, unless another one is on its way: then it returns false; `onChange()`: the
   * selection has changed; `onTouch(id, pitch, velocity)`: a note is to be heard. `pencil` draws new notes.
   */
  constructor(roll, pencil, { onEdit, onChange, onTouch }) {
    Object.assign(this, { roll, pencil, onEdit, onChange, onTouch });
    const { canvas } = roll;
    const early = { capture: true };
    canvas.addEventListener("pointerdown", (event) => this.press(event), early);
    canvas.addEventListener("pointermove", (event) => this.drag(event), early);
    on(canvas, "pointerup pointercancel", (event) => this.release(event), early);
    canvas.addEventListener("keydown", (event) => this.onKey(event), early);
  }

  /** Whether notes can be edited now; another piece has another selection. */
  show(canEdit) {
    this.canEdit = canEdit;
    this.sent = NO_CHANGE;
    if (!canEdit) this.pencil.note = null;
    const known = new Set([...this.notes()].map((one) => one.key));
    this.chosen = new Set([...(this.wanted ?? this.chosen)].filter((key) => known.has(key)));
    this.wanted = null;
    this.onChange();
    this.roll.request();
  }

  set(isOn) {
    this.isOn = isOn;
    if (!isOn) this.select([]);
    this.roll.canvas.classList.toggle("edits", isOn);
  }

  select(keys) {
    this.send();
    this.change = NO_CHANGE;
    this.chosen = new Set(keys);
    this.onChange();
    this.roll.request();
  }

  /** All visible notes: {layer, note, key}. */
  *notes() {
    for (const layer of this.roll.layers) {
      for (const note of layer.notes) {
        if (this.roll.seenEnd(layer, note) !== null) yield { layer, note, key: keyOf(layer.id, unitsOf(note.on), note.pitch) };
      }
    }
  }

  picked() {
    return [...this.notes()].filter((one) => this.chosen.has(one.key));
  }

  boxOf({ layer, note }, { later, higher, longer } = NO_CHANGE) {
    const { roll } = this;
    const off = roll.seenEnd(layer, note);
    const moved = { ...note, on: note.on + later, pitch: layer.drums ? note.pitch : note.pitch + higher };
    return roll.tiles.placer(layer, (beat) => roll.x(beat))(moved, Math.max(moved.on + 0.02, off + later + longer));
  }

  /** The note at a point of the canvas; the latest one where several overlap. */
  at(x, y) {
    let found = null;
    for (const layer of this.roll.layers) {
      const from = lowerBound(layer.notes, this.roll.view.start - layer.longest, (note) => note.on);
      for (let index = from; index < layer.notes.length; index += 1) {
        const one = { layer, note: layer.notes[index] };
        if (one.note.on > this.roll.view.start + this.roll.view.span) break;
        if (this.roll.seenEnd(layer, one.note) === null) continue;
        const [left, top, width, height] = this.boxOf(one);
        if (x >= left - NEAR && x <= left + width + NEAR && y >= top - NEAR / 2 && y <= top + height + NEAR / 2) {
          found = { ...one, key: keyOf(layer.id, unitsOf(one.note.on), one.note.pitch), isEnd: !layer.drums && width > 2 * EDGE && x > left + width - EDGE };
        }
      }
    }
    return found;
  }

  press(event) {
    const { roll } = this;
    if (!this.isOn || !this.canEdit || event.button > 0 || event.offsetX < roll.keys || event.offsetY < roll.top) return;
    const hit = this.at(event.offsetX, event.offsetY);
    const draws = !hit && this.pencil.isOn && this.pencil.start(event, event.altKey ? FINE_STEP : STEP);
    if (!hit && !draws && event.pointerType !== "mouse") return this.select([]); // a finger moves the view
    event.stopImmediatePropagation();
    roll.canvas.focus({ preventScroll: true });
    roll.canvas.setPointerCapture(event.pointerId);
    if (draws) return this.select([]);
    if (hit) this.onTouch(hit.layer.id, hit.note.pitch, hit.note.velocity);
    const adds = event.shiftKey || event.ctrlKey || event.metaKey;
    if (hit && !this.chosen.has(hit.key)) this.select(adds ? [...this.chosen, hit.key] : [hit.key]);
    else if (hit && adds) this.select([...this.chosen].filter((key) => key !== hit.key));
    else if (!hit && !adds) this.select([]);
    this.send();
    this.grip = { pointer: event.pointerId, x: event.offsetX, y: event.offsetY, hit, before: new Set(this.chosen) };
  }

  drag(event) {
    const { grip, roll, pencil } = this;
    if (pencil.note) {
      event.stopImmediatePropagation();
      return pencil.drag(event, event.altKey ? FINE_STEP : STEP);
    }
    if (!grip) {
      if (this.isOn && event.pointerType === "mouse" && !event.buttons) this.showCursor(event);
      return;
    }
    if (event.pointerId !== grip.pointer) return;
    event.stopImmediatePropagation();
    const [right, down] = [event.offsetX - grip.x, event.offsetY - grip.y];
    if (!grip.hit) this.selectWithin({ ...grip, right: event.offsetX, bottom: event.offsetY });
    else {
      const step = event.altKey ? FINE_STEP : STEP;
      const beats = Math.round(right / roll.perBeat / step) * step;
      const higher = Math.round(-down / roll.measures().row);
      const { layer, note, isEnd } = grip.hit;
      if (!isEnd && !layer.drums && higher !== this.change.higher) this.onTouch(layer.id, note.pitch + higher, note.velocity);
      this.change = grip.hit.isEnd ? { ...NO_CHANGE, longer: beats } : { later: beats, higher, longer: 0 };
    }
    roll.request();
  }

  /** Selects the notes in a rectangle. */
  selectWithin(frame) {
    this.frame = frame;
    const [left, right] = [frame.x, frame.right].sort((a, b) => a - b);
    const [top, bottom] = [frame.y, frame.bottom].sort((a, b) => a - b);
    const inside = [...this.notes()].filter((one) => {
      const [x, y, width, height] = this.boxOf(one);
      return x < right && x + width > left && y < bottom && y + height > top;
    });
    this.chosen = new Set([...frame.before, ...inside.map((one) => one.key)]);
    this.onChange();
  }

  release(event) {
    if (this.pencil.note?.pointer === event.pointerId) {
      event.stopImmediatePropagation();
      return this.pencil.release();
    }
    if (!this.grip || event.pointerId !== this.grip.pointer) return;
    event.stopImmediatePropagation();
    [this.grip, this.frame] = [null, null];
    this.send();
    this.roll.request();
  }

  showCursor({ offsetX, offsetY }) {
    const hit = offsetY > this.roll.top && this.at(offsetX, offsetY);
    this.roll.canvas.style.cursor = !hit ? "" : hit.isEnd ? "ew-resize" : "move";
  }

  /** Moves or lengthens the selected notes by steps; sent after a moment without another one. */
  nudge({ later = 0, higher = 0, longer = 0 }) {
    if (!this.chosen.size || !this.canEdit) return;
    const { change } = this;
    this.change = { later: change.later + later, higher: change.higher + higher, longer: change.longer + longer };
    this.later(() => this.send());
    this.roll.request();
    if (higher) this.hear();
  }

  /** Plays the selected notes where they are now, if they are few. */
  hear() {
    const { higher } = this.change;
    for (const { layer, note } of this.picked().slice(0, MOST_HEARD)) this.onTouch(layer.id, note.pitch + (layer.drums ? 0 : higher), note.velocity);
  }

  /** Adds a note: [id, onset, pitch, length, velocity]; returns whether it was sent. */
  add([id, on, pitch, length, velocity]) {
    if (!this.canEdit || !this.onEdit({ added: [[id, unitsOf(on), pitch, unitsOf(length), velocity]] })) return false;
    this.wanted = new Set([keyOf(id, unitsOf(on), pitch)]);
    return true;
  }

  /** Gives the selected notes a velocity. */
  setVelocity(velocity) {
    const picked = this.picked();
    if (!picked.length || !this.canEdit) return;
    const velocities = picked.map(({ layer, note }) => [layer.id, unitsOf(note.on), note.pitch, velocity]);
    if (!this.onEdit({ velocities })) return this.later(() => this.setVelocity(velocity));
    this.wanted = new Set(this.chosen);
    for (const { layer, note } of picked.slice(0, MOST_HEARD)) this.onTouch(layer.id, note.pitch, velocity);
  }

  later(call) {
    clearTimeout(this.timer);
    this.timer = setTimeout(call, SEND_MS);
  }

  remove() {
    const removed = this.picked().map(({ layer, note }) => [layer.id, unitsOf(note.on), note.pitch]);
    if (!removed.length || !this.canEdit) return;
    if (!this.onEdit({ removed })) return this.later(() => this.remove());
    this.change = NO_CHANGE;
    this.wanted = new Set();
  }

  /** Sends the change of the selected notes, if there is one. */
  send() {
    clearTimeout(this.timer);
    const { later, higher, longer } = this.change;
    if (!later && !higher && !longer) return;
    const moved = this.picked().map(({ layer, note }) => [layer.id, unitsOf(note.on), note.pitch, unitsOf(later), layer.drums ? 0 : higher, unitsOf(longer)]);
    if (!moved.length) return;
    if (!this.onEdit({ moved })) return this.later(() => this.send());
    [this.sent, this.change] = [this.change, NO_CHANGE];
    this.wanted = new Set(moved.map(([id, onset, pitch, after, above]) => keyOf(id, onset + after, pitch + above)));
  }

  onKey(event) {
    if (!this.isOn) return;
    const command = event.ctrlKey || event.metaKey;
    const step = event.altKey ? FINE_STEP : STEP;
    const sideways = (sign) => this.nudge(event.shiftKey ? { longer: sign * step } : { later: sign * step });
    const calls = {
      ArrowRight: () => sideways(1),
      ArrowLeft: () => sideways(-1),
      ArrowUp: () => this.nudge({ higher: event.shiftKey ? 12 : 1 }),
      ArrowDown: () => this.nudge({ higher: event.shiftKey ? -12 : -1 }),
      Delete: () => this.remove(),
      Backspace: () => this.remove(),
      Escape: () => this.select([]),
      ".": () => this.walk(1),
      ",": () => this.walk(-1),
      n: () => this.canEdit && this.pencil.addAt(this.roll.playhead ?? 0, this.picked(), STEP),
    };
    const moves = event.key.startsWith("Arrow") || event.key === "Escape";
    const call = command ? { a: () => this.select([...this.notes()].map((one) => one.key)) }[event.key] : calls[event.key];
    if (!call || (moves && !this.chosen.size)) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    call();
  }

  /** Selects the next or the previous note; at first, the one at the playhead. */
  walk(step) {
    const all = [...this.notes()].sort((one, other) => one.note.on - other.note.on || one.note.pitch - other.note.pitch);
    if (!all.length) return;
    const last = all.findIndex((one) => this.chosen.has(one.key));
    const start = Math.min(lowerBound(all, (this.roll.playhead ?? 0) - 0.01, ({ note }) => note.on), all.length - 1);
    const next = all[last < 0 ? start : Math.max(0, Math.min(last + step, all.length - 1))];
    this.select([next.key]);
    this.hear();
    this.roll.lookAt(next.note.on, false);
  }

  /** Outlines of the selected notes, where they will be, and the rectangle of a selection. */
  draw(pen) {
    const { roll, frame } = this;
    if (!this.isOn) return;
    pen.save();
    pen.strokeStyle = roll.colours.head;
    pen.lineWidth = 1.5;
    const { change, sent } = this;
    const whole = { later: sent.later + change.later, higher: sent.higher + change.higher, longer: sent.longer + change.longer };
    for (const one of this.picked()) {
      const [left, top, width, height] = this.boxOf(one, whole);
      pen.strokeRect(left - 1.5, top - 1.5, width + 3, height + 3);
    }
    this.pencil.draw(pen);
    if (frame) {
      pen.setLineDash([4, 3]);
      pen.strokeRect(frame.x, frame.y, frame.right - frame.x, frame.bottom - frame.y);
    }
    pen.restore();
  }
}
