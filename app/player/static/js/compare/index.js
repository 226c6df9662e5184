// The variations, each with a line of facts, of which one is chosen to be shown and played.

import { make } from "../dom.js";

export class Variations {
  constructor(list, { onChoice }) {
    Object.assign(this, { list, onChoice });
    this.cards = [];
  }

  /** `facts`: the line of each variation. */
  show(facts, chosen) {
    this.list.hidden = facts.length < 2;
    if (this.list.hidden) return;
    if (this.cards.length !== facts.length) {
      this.cards = facts.map((_, index) => this.card(index));
      this.list.replaceChildren(...this.cards);
    }
    this.cards.forEach((card, index) => {
      card.setAttribute("aria-checked", index === chosen);
      card.querySelector("small").textContent = facts[index];
    });
  }

  card(index) {
    const name = `Variation ${index + 1}`;
    const card = make(
      "button",
      { type: "button", role: "radio", title: `${name} (key ${index + 1})`, "aria-label": name },
      make("b", { textContent: String(index + 1) }),
      make("small"),
    );
    card.addEventListener("click", () => this.onChoice(index));
    return card;
  }
}
