// A range of whole bars between two handles on the ruler of the roll, which are dragged or moved by keys.

import { onDrag } from "./dom.js";
import { lowerBound } from "./roll/notes.js";

const KEY_MS = 500; // delay between the last arrow key and the event

export class BarRange {
  /** `names`: the parts of the two handles. Subclasses have `describe`, `mark` and `report`. */
  constructor(part, roll, names) {
    Object.assign(this, { part, roll });
    this.bars = [0];
    [this.from, this.to] = [0, 1]; // indices of bar lines
    this.most = 1; // the greatest `to`
    this.isOpen = false;
    this.handles = Object.fromEntries(["from", "to"].map((side, index) => [side, part(names[index])]));
    for (const [side, handle] of Object.entries(this.handles)) this.listen(handle, side);
  }

  /** Shows the handles, or hides them. */
  open(isOpen) {
    this.isOpen = isOpen;
    for (const handle of Object.values(this.handles)) handle.hidden = !isOpen;
  }

  /** Moves the handles to their bar lines on the roll; those outside the view are invisible at its edges. */
  place() {
    if (!this.isOpen) return;
    const [least, most] = [this.roll.keys, this.roll.canvas.clientWidth];
    for (const [side, handle] of Object.entries(this.handles)) {
      const at = this.roll.x(this.bars[this[side]]);
      handle.style.transform = `translateX(${Math.max(least, Math.min(at, most))}px)`;
      handle.classList.toggle("away", at < least - 1 || at > most + 1);
    }
  }

  /** Describes the range on the handles, for screen readers; returns it in words. */
  tell() {
    const [first, last] = [this.from + 1, this.to];
    const values = { from: [first, 1, last], to: [last, first, this.most] };
    for (const [side, [now, least, most]] of Object.entries(values)) {
      const handle = this.handles[side];
      handle.setAttribute("aria-valuenow", now);
      handle.setAttribute("aria-valuemin", least);
      handle.setAttribute("aria-valuemax", most);
      handle.setAttribute("aria-valuetext", `Bar ${now}`);
    }
    return first === last ? `bar ${first}` : `bars ${first}–${last}`;
  }

  move(side, line) {
    const next = side === "from" ? Math.max(0, Math.min(line, this.to - 1)) : Math.max(this.from + 1, Math.min(line, this.most));
    if (next === this[side]) return;
    this[side] = next;
    this.isChanged = true;
    this.describe();
    this.mark();
    this.place();
  }

  choose(from, to) {
    this.move("to", to);
    this.move("from", from);
    this.finish();
  }

  /** Reports the new range, if it has changed. */
  finish() {
    clearTimeout(this.timer);
    this.isHeld = false;
    if (!this.isChanged) return;
    this.isChanged = false;
    this.report({ first: this.from + 1, last: this.to });
  }

  /** Reports the new range when no key has been pressed for a while. */
  finishSoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.finish(), KEY_MS);
  }

  nearest(beat) {
    const after = Math.max(1, Math.min(lowerBound(this.bars, beat, (bar) => bar), this.bars.length - 1));
    return beat - this.bars[after - 1] < this.bars[after] - beat ? after - 1 : after;
  }

  listen(handle, side) {
    const { canvas } = this.roll;
    onDrag(handle, {
      start: () => {
        this.isHeld = true;
        this.roll.follow = false;
        handle.classList.add("held");
      },
      move: ({ clientX }) => {
        const at = clientX - canvas.getBoundingClientRect().left;
        const { view, perBeat, keys } = this.roll;
        this.move(side, this.nearest(view.start + (at - keys) / perBeat));
        if (at > canvas.clientWidth - 24) this.roll.pan(view.start + 12 / perBeat);
        else if (at < keys + 12) this.roll.pan(view.start - 12 / perBeat);
      },
      end: () => {
        handle.classList.remove("held");
        this.finish();
      },
    });
    handle.addEventListener("focus", () => {
      if (!this.isHeld) this.reveal(side, 1);
    });
    handle.addEventListener("keydown", (event) => this.onKey(event, side));
    handle.addEventListener("blur", () => handle.classList.contains("held") || this.finish());
  }

  /** Centres the view on a handle that is outside the left `part`, 0 to 1, of it. */
  reveal(side, part) {
    const beat = this.bars[this[side]];
    const { start, span } = this.roll.target;
    if (beat < start || beat > start + span * part) this.roll.pan(beat - span * 0.5);
  }

  onKey(event, side) {
    const steps = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -4, PageUp: 4, Home: -Infinity, End: Infinity };
    const step = steps[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    this.isHeld = true;
    this.move(side, this[side] + step);
    this.reveal(side, 0.98);
    this.finishSoon();
  }
}
