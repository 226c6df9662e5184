// The list of tracks: colour, name and instrument of each, mute and solo, a button for its sound, and,
// if the page offers it, which tracks the model reads and which may play in the new music.

import { BUSY_REASON, grey, make } from "./dom.js";
import { colourName, lookOf } from "./roll/notes.js";

const WISH_MS = 2000; // how long choices stand against frames that were sent before them
const MANY_TRACKS = 2; // more do not fit next to play and volume
const COLUMNS = [
  ["Track", "A track of your file and its instrument"],
  ["Prompt", "The model reads this track as part of the prompt"],
  ["May play", "The track may get notes in the new music"],
  ["Selected bars", "Keep the notes of the track in the selected bars, write new ones, or let it rest without notes"],
  ["Sound", "M mutes a track, S plays it alone, without a change of files; the third button sets instrument and volume"],
];
const SLIDERS = '<svg viewBox="0 0 24 24" aria-hidden="true"><path d="M6 20v-7M6 9V4M12 20v-3M12 13V4M18 20v-9M18 7V4M3.5 13h5M9.5 17h5M15.5 7h5"/></svg>';

const WORK = [
  ["keep", "Keep", "The notes stay"],
  ["write", "Write", "New notes"],
  ["rest", "Rest", "No notes"],
];

const controlsOf = (node) => [...node.querySelectorAll("button, input")];

export class TrackList {
  /** `onChoice({heard, played})`, `onWork(written, rests)`, with ids of tracks; `onSound(row)`. */
  constructor(list, { onMix, onChoice, onWork, onSound }) {
    Object.assign(this, { list, onMix, onChoice, onWork, onSound });
    this.muted = new Set();
    this.solo = new Set();
    this.rows = [];
    this.built = "";
    this.wishes = new Map(); // choices by track that no frame may have yet
    list.addEventListener("keydown", (event) => this.onKey(event));
  }

  /** Ids of the tracks that are muted, or not solo. */
  silent() {
    const ids = this.rows.map((row) => row.id);
    return ids.filter((id) => this.isQuiet(id)).sort((a, b) => a - b);
  }

  isQuiet(id) {
    return this.solo.size ? !this.solo.has(id) : this.muted.has(id);
  }

  /** Makes all tracks audible, for another piece. */
  clear() {
    this.muted.clear();
    this.solo.clear();
    this.wishes.clear();
  }

  /** Lets the user's choices stand until the server has answered all of them. */
  keep() {
    for (const row of this.rows) Object.assign(row, this.wishes.get(row.id));
    if (this.wishes.size) this.rests = this.rows.filter(({ rests }) => rests).map(({ id }) => id);
  }

  wish(rows) {
    for (const { id, ...choice } of rows) this.wishes.set(id, choice);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.wishes.clear();
      this.onMix(); // as the server has it
    }, WISH_MS);
    this.keep();
    this.update(false);
  }

  /** `writes`: what happens to each track in the selected bars can be chosen; `rests`: ids. */
  show(layers, { canChoose, hasSound, isOpen, writes, rests, isBusy, isSolo }) {
    this.rows = this.collect(layers, isSolo);
    const canMute = this.rows.length > 1;
    const wide = canChoose && isOpen;
    if (writes !== this.writes) this.wishes.clear();
    [this.writes, this.rests] = [writes, rests];
    this.keep();
    this.list.classList.toggle("many", this.rows.length > MANY_TRACKS);
    const built = JSON.stringify([this.rows.map(({ id, name, instrument, old, fresh, why }) => [id, name, instrument, old, fresh, why]), canMute, hasSound, wide, writes]);
    this.list.hidden = !this.rows.length;
    this.list.classList.toggle("table", wide);
    this.list.classList.toggle("writes", writes);
    if (built !== this.built) {
      const focus = controlsOf(this.list).indexOf(document.activeElement);
      this.list.replaceChildren(...(wide ? [this.head(canMute || hasSound)] : []), ...this.rows.map((row) => this.row(row, { canMute, hasSound, wide })));
      this.built = built;
      if (focus >= 0) controlsOf(this.list)[focus]?.focus();
    }
    this.update(isBusy);
  }

  /** One row for each track, with its colours in the prompt and in the new music. */
  collect(layers, isSolo) {
    const rows = new Map();
    for (const layer of layers) {
      const known = rows.get(layer.id);
      const row = known ?? { ...layer, old: null, fresh: null };
      row[layer.isNew ? "fresh" : "old"] ??= `var(--roll-${colourName(layer, isSolo)})`;
      if (!known) rows.set(layer.id, row);
    }
    return [...rows.values()];
  }

  head(canHear) {
    const unused = [...(this.writes ? ["Prompt", "May play"] : ["Selected bars"]), ...(canHear ? [] : ["Sound"])];
    const columns = COLUMNS.filter(([name]) => !unused.includes(name));
    return make(
      "li",
      { className: "head", "aria-hidden": "true" },
      ...columns.map(([textContent, title]) => make("span", { textContent, title })),
    );
  }

  row(row, { canMute, hasSound, wide }) {
    const isSaid = row.name.toLowerCase() === row.instrument?.toLowerCase();
    const instrument = isSaid ? "" : (row.instrument ?? "");
    const colours = row.old && row.fresh && "left colour: your file, right colour: new music";
    const swatch = make("i", { className: `swatch look-${lookOf(row.hue)}` });
    swatch.style.setProperty("--old", row.old ?? row.fresh);
    swatch.style.setProperty("--fresh", row.fresh ?? row.old);
    const title = [row.name, instrument, row.why, colours].filter(Boolean).join(" · ");
    const name = make("span", { className: "name", title }, row.name, " ", make("small", { textContent: instrument }));
    const item = make("li", { className: "track" }, make("div", { className: "title" }, swatch, name));
    item.dataset.id = row.id;
    if (wide && this.writes) item.append(this.work(row));
    else if (wide) {
      item.append(
        this.box("heard", `${row.name}: the model reads it as part of the prompt`),
        this.box("played", `${row.name}: may play in the new music`),
      );
    }
    const mix = canMute ? [this.button(row, "mute", "M", "Mute"), this.button(row, "solo", "S", "Solo")] : [];
    if (hasSound && row.volume !== undefined) mix.push(this.soundButton(row));
    if (mix.length) item.append(make("div", { className: "mix" }, ...mix));
    return item;
  }

  soundButton({ id, name }) {
    const label = `Instrument and volume of ${name}`;
    const button = make("button", { type: "button", innerHTML: SLIDERS, className: "sound", title: label, "aria-label": label });
    button.setAttribute("aria-haspopup", "dialog");
    button.setAttribute("aria-expanded", false);
    button.addEventListener("click", () => this.onSound(this.rows.find((row) => row.id === id)));
    return button;
  }

  button({ id, name }, kind, letter, word) {
    const label = `${word} ${name}`;
    const title = `${label} (key ${letter})`;
    const button = make("button", { type: "button", textContent: letter, className: kind, title, "aria-label": label });
    button.addEventListener("click", () => this.turn(id, kind));
    return button;
  }

  box(kind, label) {
    const box = make("input", { type: "checkbox", className: kind, "aria-label": label });
    box.addEventListener("change", () => this.choose());
    return make("label", { title: label }, box);
  }

  /** Three buttons: what happens to a track in the selected bars. */
  work({ id, name }) {
    const buttons = WORK.map(([kind, word, text]) => {
      const label = `${word} ${name}`;
      const button = make("button", { type: "button", textContent: word, className: "work", title: `${text}: ${name}`, "aria-label": label });
      button.dataset.work = kind;
      button.addEventListener("click", () => this.setWork(id, kind));
      return button;
    });
    return make("div", { className: "player-segments", role: "group", "aria-label": `${name} in the selected bars` }, ...buttons);
  }

  workOf(row) {
    if (this.rests.includes(row.id)) return "rest";
    return row.played ? "write" : "keep";
  }

  setWork(id, kind) {
    const works = this.rows.filter((row) => row.played !== undefined).map((row) => [row.id, row.id === id ? kind : this.workOf(row)]);
    this.wish(works.map(([one, work]) => ({ id: one, played: work === "write", rests: work === "rest" })));
    const idsOf = (wanted) => works.filter(([, work]) => work === wanted).map(([one]) => one);
    this.onWork(idsOf("write"), idsOf("rest"));
  }

  /** Shows the state of each control. */
  update(isBusy) {
    for (const item of this.list.querySelectorAll(".track")) {
      const id = Number(item.dataset.id);
      const row = this.rows.find((one) => one.id === id);
      item.classList.toggle("quiet", this.isQuiet(id));
      item.querySelector(".mute")?.setAttribute("aria-pressed", this.muted.has(id));
      item.querySelector(".solo")?.setAttribute("aria-pressed", this.solo.has(id));
      for (const button of item.querySelectorAll(".work")) button.setAttribute("aria-pressed", button.dataset.work === this.workOf(row));
      for (const box of item.querySelectorAll("input")) {
        box.checked = row[box.className] ?? true;
        grey(box, isBusy ? BUSY_REASON : "");
        box.parentElement.style.visibility = row[box.className] === undefined ? "hidden" : ""; // a new instrument
      }
    }
  }

  turn(id, kind) {
    const ids = kind === "mute" ? this.muted : this.solo;
    if (!ids.delete(id)) ids.add(id);
    this.onMix();
  }

  choose() {
    const chosen = { heard: [], played: [] };
    for (const row of this.rows) {
      for (const [kind, ids] of Object.entries(chosen)) {
        const box = this.list.querySelector(`.track[data-id="${row.id}"] input.${kind}`);
        if (row[kind] !== undefined) row[kind] = box.checked;
        if (box.checked) ids.push(row.id);
      }
    }
    this.wish(this.rows.map(({ id, heard, played }) => ({ id, heard, played })));
    this.onChoice(chosen);
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const item = event.target.closest(".track");
    const kind = { m: "mute", s: "solo" }[event.key.toLowerCase()];
    if (!kind || !item?.querySelector(".mute")) return;
    this.turn(Number(item.dataset.id), kind);
    event.preventDefault();
    event.stopPropagation();
  }
}
