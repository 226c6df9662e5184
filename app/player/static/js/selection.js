// The bars that are to be written: selected by dragging over the roll, by handles, buttons or keys. Their
// tracks are chosen in the list of tracks, a new track by its instrument.

import { BarRange } from "./handles.js";
import { lowerBound } from "./roll/notes.js";

const FIRST_BARS = 4; // that the button "Selected bars" selects

export class Selection extends BarRange {
  chosen = null; // {first, last, tracks, rests, instrument, problem} as in frames.py; null: new music follows at the end

  /** `onChange(chosen)`: null if nothing is selected any more. */
  constructor(part, roll, { onChange }) {
    super(part, roll, ["select-from", "select-to"]);
    this.onChange = onChange;
    const clicks = {
      "at-end": () => (this.isSet ? this.clear() : this.onChange(null)), // a result becomes the piece
      "in-bars": () => this.chosen || this.begin(),
      "select-all": () => this.choose(0, this.most),
    };
    for (const [name, call] of Object.entries(clicks)) part(name).addEventListener("click", call);
    this.instrument = part("instrument");
    this.instrument.addEventListener("change", () => this.add(this.instrument.value));
  }

  /**
   * `gap` as in frames.py, or null; `last`: what was written in the shown result, or null; `canSelect`: bars can
   * be selected; `canAdd`: so can the instrument of a new track; `isSet`: the bars can be changed by handles.
   */
  show({ bars, gap, last = null, canSelect, canAdd, isSet }) {
    const { part, roll } = this;
    roll.canSelect = canSelect && bars.length > 1;
    part("where").hidden = !roll.canSelect;
    part("selection").hidden = !isSet || !gap;
    part("new-track").hidden = !canAdd;
    part("at-end").setAttribute("aria-pressed", isSet && !gap);
    part("in-bars").setAttribute("aria-pressed", Boolean(gap));
    part("problem").hidden = !isSet || !gap?.problem;
    part("problem").textContent = (isSet && gap?.problem) || "";
    Object.assign(this, { bars, last, isSet });
    this.most = Math.max(1, bars.length - 1);
    if (this.isHeld) return;
    this.chosen = gap;
    this.instrument.value = gap?.instrument ?? "";
    this.open(Boolean(isSet && gap));
    if (!gap) return;
    [this.from, this.to] = [Math.min(gap.first, this.most) - 1, Math.min(gap.last, this.most)];
    this.describe();
  }

  describe() {
    this.part("selection-bars").textContent = this.tell();
    this.part("select-all").setAttribute("aria-pressed", this.from === 0 && this.to === this.most);
  }

  mark() {
    this.roll.select(this.bars[this.from], this.bars[this.to]);
  }

  report({ first, last }) {
    const { tracks = null, rests = [], instrument = null } = this.chosen ?? {};
    this.chosen = { first, last, tracks, rests, instrument };
    this.onChange(this.chosen);
  }

  /** Selects bars between two bar lines, and reports them unless they are `held`. */
  choose(from, to, held = false) {
    [from, to] = [Math.max(0, Math.min(from, this.most - 1)), Math.min(Math.max(to, from + 1), this.most)];
    this.isChanged ||= !this.chosen || from !== this.from || to !== this.to;
    [this.from, this.to] = [from, to];
    this.open(true);
    this.describe();
    this.mark();
    this.place();
    this.isHeld = held;
    if (!held) this.finish();
  }

  /** Selects the bars that two beats are in, while they are dragged over. */
  drag(one, other) {
    if (Math.min(one, other) >= this.bars.at(-1)) return; // over bars that are not written yet
    const before = (beat) => lowerBound(this.bars, beat + 0.001, (bar) => bar) - 1;
    this.choose(before(Math.min(one, other)), before(Math.max(one, other)) + 1, true);
  }

  /** Selects the bars and tracks that were written last, or some bars in view, from the position if it is. */
  begin() {
    if (this.last) {
      this.onChange((this.chosen = { ...this.last }));
      return;
    }
    const { playhead, target } = this.roll;
    const isSeen = playhead > target.start && playhead < target.start + target.span;
    const from = lowerBound(this.bars, (isSeen ? playhead : target.start + target.span / 4) + 0.001, (bar) => bar) - 1;
    const latest = Math.max(0, this.most - FIRST_BARS);
    this.choose(Math.min(from, latest), Math.min(from, latest) + FIRST_BARS);
  }

  /** Selects one bar more or fewer, beginning at the bar of a beat. */
  extend(step, beat) {
    const from = lowerBound(this.bars, beat + 0.01, (bar) => bar) - 1;
    if (this.isOpen) this.choose(this.from, this.to + step, true);
    else this.choose(from, from + 1, true);
    this.reveal("to", 0.98);
    this.finishSoon();
  }

  clear() {
    if (!this.chosen) return;
    this.chosen = null;
    this.onChange(null);
  }

  /** Chooses which tracks are written and which rest, by their ids. */
  setTracks(tracks, rests) {
    this.chosen = { ...this.chosen, tracks, rests };
    this.onChange(this.chosen);
  }

  /** Chooses the instrument of a new track, by its number as text; "" for none. */
  add(number) {
    const instrument = number === "" ? null : Number(number);
    const { first = 1, last = this.most, tracks = null, rests = [] } = this.chosen ?? {};
    if (instrument === null && !this.chosen) return;
    this.chosen = { first, last, tracks, rests, instrument };
    this.onChange(this.chosen);
  }
}
