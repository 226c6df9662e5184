// What is asked of the new bars, after a piece or of one from nothing, in the rows over the roll: sections
// and chords, which are added, changed and removed there. The fields of the form hold them; the rows show
// these and report changes.

import { closeOutside, grey, make, onDrag } from "../dom.js";
import { CLICK_PIXELS } from "./gestures.js";
import { lowerBound } from "./notes.js";

const LEAST_PIXELS = 9; // narrower bars cannot be clicked

export class AskedRows {
  plan = null; // as in app/player/plan.py
  lines = []; // bar lines of the new bars

  /** `onAsk({form, chords, growth})`: one of them. */
  constructor(part, roll, { onAsk }) {
    Object.assign(this, { part, roll, onAsk });
    [this.sections, this.chords] = ["asked-sections", "asked-chords"].map(part);
    this.pick = part("pick");
    this.ghost = part("section-ghost");
    for (const button of part("growth").querySelectorAll("[data-growth]")) {
      button.addEventListener("click", () => onAsk({ growth: button.dataset.growth }));
    }
    for (const row of [this.sections, this.chords]) row.addEventListener("keydown", (event) => this.walk(row, event));
    closeOutside(this.pick, () => null, () => this.close());
  }

  /** `plan`: what is asked, or null; `lines`: the bar lines of the new bars; `canAsk`: it can be changed. */
  show(plan, lines, { canAsk, grows }) {
    const { part } = this;
    const isOpen = Boolean(plan && canAsk);
    part("growth").hidden = !isOpen || !grows;
    part("asked").hidden = !isOpen;
    part("ways").hidden = plan?.first === 1; // nothing can grow
    if (!isOpen) this.close();
    [this.lines, this.grows] = [lines, grows];
    if (!isOpen) {
      this.plan = null;
      return;
    }
    part("asked-text").textContent = plan.problem || (plan.asked ? `Asked: ${plan.asked}` : "The model chooses form and chords");
    part("asked-text").classList.toggle("wrong", Boolean(plan.problem));
    for (const button of part("growth").querySelectorAll("[data-growth]")) button.setAttribute("aria-pressed", button.dataset.growth === plan.growth);
    if (JSON.stringify(plan) !== JSON.stringify(this.plan)) {
      const isLonger = grows && this.plan && this.plan.first === plan.first && this.plan.bars !== plan.bars;
      this.plan = plan;
      this.build();
      if (isLonger) this.roll.showFresh();
    }
    this.place();
  }

  build() {
    const { plan } = this;
    let bar = 0;
    const chips = plan.sections.map(([letter, count], index) => {
      const label = `Section ${letter}, ${barsOf(count)}: change it`;
      const chip = this.cell(letter, bar, count, { className: "set", title: label, "aria-label": label });
      this.letCarry(chip, [letter, count], () => this.pickSection(chip, index));
      bar += count;
      return chip;
    });
    if (bar < plan.bars) {
      const title = "Choose a section for these bars, or drag the letter of a section here; otherwise the model chooses";
      const add = this.cell("+ section", bar, plan.bars - bar, { title, "aria-label": "Add a section" });
      add.addEventListener("click", () => this.pickSection(add, plan.sections.length));
      chips.push(add);
    } else if (this.grows) {
      const add = this.cell("+", bar, 0, { title: "Add a section after the others", "aria-label": "Add a section" });
      add.addEventListener("click", () => this.pickSection(add, plan.sections.length));
      chips.push(add);
    }
    this.fill(this.sections, chips);
    if (plan.no_chords) {
      const none = this.cell("no chords: only drums play", 0, plan.bars, {});
      grey(none, plan.no_chords);
      this.fill(this.chords, [none]);
      return;
    }
    const cells = Array.from({ length: plan.bars }, (_, index) => {
      const chord = plan.chords[index] ?? "";
      const isWrong = plan.wrong.includes(index);
      const label = `Bar ${plan.first + index}: ${chord || "chords chosen by the model"}${isWrong ? " is not understood" : ""}`;
      const className = `${chord ? "set" : ""} ${index < plan.written ? "" : "again"} ${isWrong ? "wrong" : ""}`.trim();
      const cell = this.cell(chord || "·", index, 1, { className, title: `${label}; click to choose`, "aria-label": label });
      cell.addEventListener("click", () => this.pickChord(cell, index));
      return cell;
    });
    this.fill(this.chords, cells);
  }

  cell(text, bar, count, properties) {
    const cell = make("button", { type: "button", textContent: text, ...properties });
    Object.assign(cell.dataset, { bar, count });
    return cell;
  }

  /** Replaces the cells of a row, in which the tab key reaches one. */
  fill(row, cells) {
    const index = [...row.children].indexOf(document.activeElement);
    row.replaceChildren(...cells);
    const reached = cells[Math.min(Math.max(index, 0), cells.length - 1)];
    for (const cell of cells) cell.tabIndex = cell === reached ? 0 : -1;
    if (index >= 0) reached?.focus();
  }

  walk(row, event) {
    const cells = [...row.children];
    const at = cells.indexOf(event.target);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: cells.length - 1 }[event.key];
    if (event.key === "Delete" || event.key === "Backspace") {
      if (row === this.chords) this.setChord(at, "");
      else if (at < this.plan.sections.length) this.setSections(this.plan.sections.toSpliced(at, 1));
    } else if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    if (!cells[to]) return;
    for (const cell of cells) cell.tabIndex = cell === cells[to] ? 0 : -1;
    this.reveal(Number(cells[to].dataset.bar));
    cells[to].style.visibility = ""; // a hidden cell cannot have the focus
    cells[to].focus();
  }

  reveal(bar) {
    const { start, span } = this.roll.target;
    const beat = this.lines[bar];
    if (beat < start || (this.lines[bar + 1] ?? beat) > start + span) this.roll.pan(beat - span / 2);
  }

  /** Moves the cells to their bars on the roll. */
  place() {
    if (!this.plan || !this.lines.length) return;
    const { roll } = this;
    const width = roll.canvas.clientWidth;
    for (const cell of [...this.sections.children, ...this.chords.children]) {
      const [bar, count] = [Number(cell.dataset.bar), Number(cell.dataset.count)];
      const left = Math.max(roll.keys, roll.x(this.lines[bar]) + 1);
      const right = Math.min(width, count ? roll.x(this.lines[bar + count]) - 1 : left + 24);
      cell.style.visibility = right - left < LEAST_PIXELS && document.activeElement !== cell ? "hidden" : "";
      cell.style.transform = `translateX(${left}px)`;
      cell.style.width = `${Math.max(0, right - left)}px`;
    }
  }

  // changes

  setSections(sections) {
    this.close();
    this.onAsk({ form: sections.map(([letter, count]) => `${letter}${count}`).join(" ") });
  }

  /** Lets a section that is asked be dragged to other new bars, to ask for its return; a click calls `onClick`. */
  letCarry(chip, section, onClick) {
    const { roll } = this;
    let [from, at, moved] = [0, 0, false];
    const place = () => at - roll.canvas.getBoundingClientRect().left;
    onDrag(chip, {
      start: ({ clientX }) => ([from, moved] = [clientX, false]),
      move: ({ clientX }) => {
        at = clientX;
        moved ||= Math.abs(at - from) > CLICK_PIXELS;
        if (moved) this.carry(section, place());
      },
      end: () => {
        const { left, right } = chip.getBoundingClientRect();
        this.carry(null);
        if (moved && (at < left || at > right)) this.drop(section, roll.beatAt({ offsetX: place() }));
      },
    });
    chip.addEventListener("click", () => {
      if (!moved) onClick();
      moved = false;
    });
  }

  /** Asks for a section at a new bar: before the section there, or after the last one. */
  drop([letter, count], beat) {
    if (!this.plan || beat < this.lines[0]) return;
    const bar = lowerBound(this.lines, beat + 0.001, (line) => line) - 1;
    let [index, before] = [0, 0];
    while (index < this.plan.sections.length && before + this.plan.sections[index][1] <= bar) before += this.plan.sections[index++][1];
    this.setSections(this.plan.sections.toSpliced(index, 0, [letter, count]));
  }

  setChord(bar, text) {
    const { chords, written, bars } = this.plan;
    const cells = chords.length ? chords.slice(0, bar < written ? written : bars) : Array(bars).fill("");
    cells[bar] = text.trim();
    this.close();
    this.onAsk({ chords: cells.some(Boolean) ? cells.map((cell) => cell || "?").join(" | ") : "" });
  }

  // the choices for a cell

  open(cell, label, ...children) {
    this.close();
    this.opener = cell;
    this.pick.replaceChildren(...children);
    this.pick.setAttribute("aria-label", label);
    this.pick.hidden = false;
    const stage = this.pick.parentElement.clientWidth;
    const { left } = cell.getBoundingClientRect();
    const at = left - this.pick.parentElement.getBoundingClientRect().left;
    this.pick.style.left = `${Math.max(6, Math.min(at, stage - this.pick.offsetWidth - 6))}px`;
    this.pick.querySelector("input, button")?.focus();
  }

  close() {
    if (this.pick.hidden) return;
    const hadFocus = this.pick.contains(document.activeElement);
    this.pick.hidden = true;
    if (hadFocus && this.opener?.isConnected) this.opener.focus();
  }

  choice(text, title, call) {
    const button = make("button", { type: "button", textContent: text, title });
    button.addEventListener("click", call);
    return button;
  }

  pickSection(cell, index) {
    const { letters, sections, bars } = this.plan;
    const old = sections[index];
    const others = sections.reduce((sum, [, count], at) => sum + (at === index ? 0 : count), 0);
    const size = make("input", { type: "number", min: 1, max: Math.max(1, Math.max(bars - others, old?.[1] ?? 1, 64)), value: old?.[1] ?? letters[0][1] });
    let isSet = Boolean(old);
    size.addEventListener("input", () => (isSet = true));
    const put = (letter, usual) => this.setSections(sections.toSpliced(index, old ? 1 : 0, [letter, (isSet && Number(size.value)) || usual]));
    const options = letters.map(([letter, count], at) => {
      const isNew = at === letters.length - 1;
      return this.choice(isNew ? `${letter} new` : letter, isNew ? "A new section" : `Section ${letter} comes back (${barsOf(count)})`, () => put(letter, count));
    });
    const extra = old ? [this.choice("Remove", "Leave these bars to the model", () => this.setSections(sections.toSpliced(index, 1)))] : [];
    const keep = (event) => event.key === "Enter" && old && put(...old);
    size.addEventListener("keydown", keep);
    const label = make("label", {}, "Bars ", size);
    this.open(cell, `Section from bar ${this.plan.first + Number(cell.dataset.bar)}`, make("div", { className: "choices" }, ...options, ...extra), label);
  }

  pickChord(cell, bar) {
    const { chords, known, bars, first } = this.plan;
    const text = make("input", { type: "text", value: chords[bar] ?? "", placeholder: "Am7, or G7 E7", maxLength: 24, "aria-label": `Chords of bar ${first + bar}` });
    text.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && !(event.key === "Tab" && !event.shiftKey && text.value.trim())) return;
      event.preventDefault();
      this.setChord(bar, text.value);
      if (event.key === "Tab" && bar + 1 < bars) this.next = bar + 1;
      this.chords.children[Math.min(bar + 1, bars - 1)]?.focus();
    });
    const options = known.map((chord) => this.choice(chord, `Ask for ${chord}`, () => this.setChord(bar, chord)));
    const none = this.choice("Model chooses", "Leave this bar to the model", () => this.setChord(bar, ""));
    this.open(cell, `Chords of bar ${first + bar}`, text, make("div", { className: "choices" }, ...options, none));
    text.select();
  }

  /** Shows the section that is dragged, or hides it. */
  carry(section, x) {
    this.ghost.hidden = !section || !this.plan;
    if (this.ghost.hidden) return;
    this.ghost.textContent = `${section[0]}${section[1]}`;
    this.ghost.style.transform = `translateX(${x}px)`;
  }
}

/** The bar lines of the bars of which something is asked: those selected, or new ones as long as the last bar. */
export function linesOf(plan, bars, splice, gap) {
  if (!plan) return [];
  if (gap) return bars.slice(plan.first - 1, plan.first + plan.bars);
  const at = Math.max(1, lowerBound(bars, splice - 0.01, (bar) => bar));
  const size = bars[at] - bars[at - 1] || 4;
  return Array.from({ length: plan.bars + 1 }, (_, index) => splice + index * size);
}

/** Form and chords of the upload, if there is one; while music is written, also what is asked of it. */
export function sheetWith(plan, { prompt, phase }) {
  const found = prompt?.sheet ?? null;
  if (!plan) return found;
  const { sections, chords } = found ?? { sections: [], chords: [] };
  const before = plan.first - 1;
  const after = before + plan.bars;
  const isNew = !prompt?.gap;
  const asked = Array.from({ length: plan.bars }, (_, bar) => (phase !== "prompt" && plan.chords[bar]) || (isNew ? "" : (chords[before + bar] ?? "")));
  let first = plan.first;
  const named = phase === "prompt" ? [] : plan.sections.map(([letter, count]) => [letter, (first += count) - count, count]);
  return {
    sections: isNew ? [...sections.filter(([, start]) => start <= before), ...named] : sections,
    chords: [...chords.slice(0, before), ...asked, ...(isNew ? [] : chords.slice(after))],
  };
}

const barsOf = (count) => (count === 1 ? "1 bar" : `${count} bars`);
