// A blind comparison: two variations named A and B in random order. When both were played, one is chosen;
// then it is said which they were, and the choice is counted.

import { grey, write } from "../dom.js";

const HEARD_MS = 100;

export class BlindTest {
  order = null; // the variations named A and B while they are compared
  heard = new Set(); // 0: A, 1: B
  counts = new Map(); // wins and comparisons of each variation, by "job/variation"

  /** `sound`: the `Sound`; `show(index)` shows and plays a variation; `onChange()`: the test began or ended. */
  constructor(part, sound, { show, onChange }) {
    Object.assign(this, { part, sound, show, onChange });
    const clicks = {
      "blind-start": () => this.begin(),
      "blind-a": () => this.play(0),
      "blind-b": () => this.play(1),
      "prefer-a": () => this.choose(0),
      "prefer-b": () => this.choose(1),
      "blind-again": () => this.begin(),
      "blind-end": () => this.end(),
    };
    for (const [name, call] of Object.entries(clicks)) part(name).addEventListener("click", call);
  }

  get isOpen() {
    return !this.part("blind").hidden;
  }

  /** Which variations can be compared: those of a job whose music is finished. */
  offer(job, count, isDone) {
    if (this.isOpen && (!isDone || job !== this.job || count !== this.count)) this.end();
    Object.assign(this, { job, count });
    this.part("blind-start").hidden = !isDone || count < 2;
  }

  begin() {
    const first = Math.floor(Math.random() * this.count);
    const second = (first + 1 + Math.floor(Math.random() * (this.count - 1))) % this.count;
    [this.order, this.heard] = [[first, second], new Set()];
    this.part("blind").hidden = false;
    this.render();
    this.onChange();
    this.part("blind-a").focus({ preventScroll: true });
  }

  play(place) {
    if (!this.order) return;
    this.show(this.order[place]);
    clearInterval(this.timer);
    this.timer = setInterval(() => {
      const { rendered } = this.sound;
      const isPlayed = rendered.isPlaying && rendered.deck.dataset.name === `${this.job}/${this.order?.[place]}`;
      if (isPlayed && !this.heard.has(place)) {
        this.heard.add(place);
        this.render();
      }
      for (const [index, name] of ["blind-a", "blind-b"].entries()) this.part(name).setAttribute("aria-pressed", isPlayed && index === place);
    }, HEARD_MS);
  }

  choose(place) {
    const [chosen, other] = [this.order[place], this.order[1 - place]];
    for (const variation of [chosen, other]) {
      const { wins, tests } = this.countOf(variation);
      this.counts.set(`${this.job}/${variation}`, { wins: wins + (variation === chosen), tests: tests + 1 });
    }
    const [a, b] = this.order.map((variation) => variation + 1);
    this.order = null;
    this.stop();
    this.render(`A was variation ${a}, B was variation ${b}. You preferred variation ${chosen + 1}.`);
    this.part("blind-again").focus({ preventScroll: true });
  }

  countOf(variation) {
    return this.counts.get(`${this.job}/${variation}`) ?? { wins: 0, tests: 0 };
  }

  stop() {
    clearInterval(this.timer);
    this.sound.pause();
  }

  end() {
    this.order = null;
    this.stop();
    this.part("blind").hidden = true;
    this.onChange();
    this.part("blind-start").focus({ preventScroll: true });
  }

  render(said = "Play A and B, then choose the better one.") {
    const { part, order, heard } = this;
    write(part("blind-say"), said);
    for (const name of ["blind-a", "blind-b", "prefer-a", "prefer-b"]) part(name).hidden = !order;
    for (const name of ["prefer-a", "prefer-b"]) grey(part(name), heard.size < 2 ? "Play A and B first." : "");
    part("blind-again").hidden = Boolean(order);
    const counted = [...Array(this.count).keys()].map((index) => ({ name: index + 1, ...this.countOf(index) })).filter(({ tests }) => tests);
    const rows = counted.map(({ name, wins, tests }) => `variation ${name}: ${wins} of ${tests}`);
    write(part("blind-counts"), !order && rows.length ? `Preferred so far: ${rows.join(", ")}.` : "");
  }
}
