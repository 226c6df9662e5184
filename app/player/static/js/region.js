// The region of the prompt, which the model reads: two handles, and buttons for common choices.

import { grey } from "./dom.js";
import { BarRange } from "./handles.js";
import { lowerBound } from "./roll/notes.js";

const USUAL_BARS = 8; // of the button "last bars" in player.html

export class PromptRegion extends BarRange {
  constructor(part, roll, { onChange }) {
    super(part, roll, ["handle-from", "handle-to"]);
    this.report = onChange;
    part("last-bars").addEventListener("click", () => this.choose(Math.max(0, this.to - USUAL_BARS), this.to));
    part("all-bars").addEventListener("click", () => this.choose(0, this.most));
  }

  /** `first` and `splice` are bar lines of `bars`, `end` the last onset; `isOpen`: the region can be changed. */
  show({ bars, first, splice, end, isOpen }) {
    this.open(isOpen && bars.length > 1 && splice > 0);
    this.part("region").hidden = !this.isOpen;
    if (!this.isOpen || this.isHeld) return;
    this.bars = bars;
    const line = (beat) => Math.min(lowerBound(bars, beat - 0.01, (bar) => bar), bars.length - 1);
    this.to = Math.max(1, line(splice));
    this.from = Math.min(line(first), this.to - 1);
    this.most = Math.max(this.to, Math.min(lowerBound(bars, end + 0.01, (bar) => bar), bars.length - 1));
    this.describe();
  }

  mark() {
    this.roll.mark(this.bars[this.from], this.bars[this.to]);
  }

  /** Describes the region in words, on the handles and beside the buttons. */
  describe() {
    this.part("region-bars").textContent = this.tell();
    this.part("all-bars").setAttribute("aria-pressed", this.from === 0 && this.to === this.most);
    this.part("last-bars").setAttribute("aria-pressed", this.to - this.from === USUAL_BARS && this.from > 0);
    grey(this.part("last-bars"), this.to <= USUAL_BARS ? `There are no more than ${USUAL_BARS} bars before the new music.` : "");
  }
}
