// Variations side by side: a small map of the new music of each, with a line of facts; a click or a key
// chooses the one to show and play.

import { make } from "../dom.js";
import { colourName } from "../roll/notes.js";
import { fitCanvas, penOf } from "../roll/pen.js";
import { QUIET } from "../roll/tiles.js";

export class Variations {
  constructor(list, roll, { onChoice }) {
    Object.assign(this, { list, roll, onChoice });
    this.cards = [];
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(list);
    list.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const next = (this.chosen + step + this.cards.length) % this.cards.length;
      onChoice(next);
      this.cards[next].focus();
    });
  }

  /** `variations`: {layers, from, to, facts} of each; times in quarter notes. */
  show(variations, chosen) {
    this.variations = variations;
    this.chosen = chosen;
    this.list.hidden = variations.length < 2;
    if (this.list.hidden) return;
    if (this.cards.length !== variations.length) {
      this.cards = variations.map((_, index) => this.card(index));
      this.list.replaceChildren(...this.cards);
    }
    this.cards.forEach((card, index) => {
      card.setAttribute("aria-checked", index === chosen);
      card.tabIndex = index === chosen ? 0 : -1;
      card.querySelector("small").textContent = variations[index].facts;
    });
    this.draw();
  }

  card(index) {
    const name = `Variation ${index + 1}`;
    const card = make(
      "button",
      { type: "button", role: "radio", title: `${name} (key ${index + 1})`, "aria-label": name },
      make("b", { textContent: String(index + 1) }),
      make("small"),
      make("canvas", { "aria-hidden": "true" }),
    );
    card.addEventListener("click", () => this.onChoice(index));
    return card;
  }

  draw() {
    if (this.list.hidden || !this.variations) return;
    this.cards.forEach((card, index) => {
      this.drawMap(card.querySelector("canvas"), this.variations[index]);
    });
  }

  /** Draws all new music of a variation, in the range of pitches of the roll. */
  drawMap(canvas, { layers, from, to }) {
    fitCanvas(canvas);
    const { clientWidth: width, clientHeight: height } = canvas;
    const pen = penOf(canvas);
    pen.clearRect(0, 0, width, height);
    const { colours, wanted, isSolo } = this.roll;
    const [low, high] = wanted ?? [48, 84];
    const hasDrums = layers.some((layer) => layer.drums);
    const floor = hasDrums ? height * 0.8 : height;
    const perBeat = width / Math.max(to - from, 1);
    for (const layer of layers) {
      pen.fillStyle = colours[colourName({ ...layer, isNew: true }, isSolo)];
      pen.globalAlpha = layer.isQuiet ? QUIET : 0.85;
      for (const note of layer.notes) {
        const left = (note.on - from) * perBeat;
        if (layer.drums) pen.fillRect(left, floor + 2 + (this.drumHeight(note.pitch) * (height - floor - 4)), 1, 2);
        else pen.fillRect(left, ((high - note.pitch) / (high - low)) * (floor - 3), Math.max(1, (note.off - note.on) * perBeat - 0.3), 2);
      }
    }
  }

  /** The place of a drum, from 0 (the highest) to 1. */
  drumHeight(key) {
    const { drums, drumRow } = this.roll;
    return drums.length > 1 ? (drumRow.get(key) ?? 0) / (drums.length - 1) : 0;
  }
}
