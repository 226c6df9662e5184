// The tracks: colour, name and instrument of each, mute and solo, and where the page offers it what the
// model hears of the prompt and which instruments may play in the new music.

const MANY_TRACKS = 4; // that do not fit beside play and volume
const COLUMNS = [
  ["Track", "A track of your file, and what plays it"],
  ["Prompt", "The model hears this track before it writes"],
  ["May play", "The model may write for this track in the new music"],
  ["Listen", "M mutes a track in the sound, S plays it alone; the files stay as they are"],
];

class TrackList {
  constructor(list, { onMix, onChoice }) {
    this.list = list;
    this.onMix = onMix;
    this.onChoice = onChoice;
    this.muted = new Set();
    this.solo = new Set();
    this.heardWithout = [[], []]; // mute and solo of what sounds
    this.rows = [];
    this.built = "";
    list.addEventListener("keydown", (event) => this.onKey(event));
    list.addEventListener("focusin", (event) => this.rove(event.target));
  }

  /** Ids of tracks that do not sound. */
  silent() {
    const ids = this.rows.map((row) => row.id);
    return ids.filter((id) => (this.solo.size ? !this.solo.has(id) : this.muted.has(id))).sort((a, b) => a - b);
  }

  isQuiet(id) {
    return this.solo.size ? !this.solo.has(id) : this.muted.has(id);
  }

  /** Another piece: all tracks sound. */
  clear() {
    this.muted.clear();
    this.solo.clear();
    this.confirm();
  }

  /** What is asked for sounds now. */
  confirm() {
    this.heardWithout = [[...this.muted], [...this.solo]];
  }

  /** What was asked for cannot be had: back to what sounds. */
  restore() {
    [this.muted, this.solo] = this.heardWithout.map((ids) => new Set(ids));
    this.onMix({ isRestored: true });
  }

  show(layers, { canMix, canChoose, isOpen, isBusy, isSolo }) {
    this.rows = this.collect(layers, isSolo);
    const canMute = canMix && this.rows.length > 1;
    const wide = canChoose && isOpen;
    this.list.classList.toggle("many", this.rows.length > MANY_TRACKS);
    const built = JSON.stringify([this.rows.map(({ id, name, instrument, old, fresh, why }) => [id, name, instrument, old, fresh, why]), canMute, wide]);
    this.list.hidden = !this.rows.length;
    this.list.classList.toggle("table", wide);
    if (built !== this.built) {
      const focus = this.controls().findIndex((control) => control === document.activeElement);
      this.list.replaceChildren(...(wide ? [this.head(canMute)] : []), ...this.rows.map((row) => this.row(row, { canMute, wide })));
      this.built = built;
      this.rove(this.controls()[Math.max(0, focus)]);
      if (focus >= 0) this.controls()[focus]?.focus();
    }
    this.update(isBusy);
  }

  /** One row for each track, with its colours before and after the joint. */
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

  head(canMute) {
    const head = document.createElement("li");
    head.className = "head";
    head.setAttribute("aria-hidden", "true");
    const columns = COLUMNS.slice(0, canMute ? 4 : 3);
    head.append(...columns.map(([textContent, title]) => Object.assign(document.createElement("span"), { textContent, title })));
    return head;
  }

  row(row, { canMute, wide }) {
    const item = document.createElement("li");
    item.className = "track";
    item.dataset.id = row.id;
    const [old, fresh] = [row.old ?? row.fresh, row.fresh ?? row.old];
    const swatch = document.createElement("i");
    swatch.className = `swatch look-${lookOf(row.hue)}`;
    swatch.style.setProperty("--old", old);
    swatch.style.setProperty("--fresh", fresh);
    const name = document.createElement("span");
    name.className = "name";
    name.textContent = row.name;
    const what = document.createElement("small");
    const isSaid = row.name.toLowerCase() === row.instrument?.toLowerCase();
    what.textContent = isSaid ? "" : (row.instrument ?? "");
    name.append(" ", what);
    name.title = [row.name, what.textContent, row.why, row.old && row.fresh && "left colour: your file, right colour: new music"]
      .filter(Boolean)
      .join(" · ");
    const title = document.createElement("div");
    title.className = "title";
    title.append(swatch, name);
    item.append(title);
    if (wide) {
      item.append(
        this.box(row, "heard", `${row.name}: the model hears it as a part of the prompt`),
        this.box(row, "played", `${row.name}: may play in the new music`),
      );
    }
    if (canMute) {
      const both = document.createElement("div");
      both.className = "mix";
      both.append(this.button(row, "mute", "M", "Mute"), this.button(row, "solo", "S", "Solo"));
      item.append(both);
    }
    return item;
  }

  button(row, kind, letter, word) {
    const button = document.createElement("button");
    Object.assign(button, { type: "button", textContent: letter, className: kind, tabIndex: -1, title: `${word} ${row.name} (key ${letter})` });
    button.setAttribute("aria-label", `${word} ${row.name}`);
    button.addEventListener("click", () => this.turn(row.id, kind));
    return button;
  }

  box(row, kind, label) {
    const cell = document.createElement("label");
    cell.title = label;
    const box = document.createElement("input");
    Object.assign(box, { type: "checkbox", className: kind, tabIndex: -1 });
    box.setAttribute("aria-label", label);
    box.addEventListener("change", () => this.choose());
    cell.append(box);
    return cell;
  }

  /** Puts the states on what stands there. */
  update(isBusy) {
    for (const item of this.list.querySelectorAll(".track")) {
      const id = Number(item.dataset.id);
      const row = this.rows.find((one) => one.id === id);
      item.classList.toggle("quiet", this.isQuiet(id));
      item.querySelector(".mute")?.setAttribute("aria-pressed", this.muted.has(id));
      item.querySelector(".solo")?.setAttribute("aria-pressed", this.solo.has(id));
      for (const box of item.querySelectorAll("input")) {
        box.checked = row[box.className] ?? true;
        box.disabled = isBusy;
        box.parentElement.style.visibility = row[box.className] === undefined ? "hidden" : ""; // of new instruments
      }
    }
  }

  turn(id, kind) {
    const ids = kind === "mute" ? this.muted : this.solo;
    if (!ids.delete(id)) ids.add(id);
    this.onMix({ isRestored: false });
  }

  choose() {
    const chosen = (kind) =>
      [...this.list.querySelectorAll(`input.${kind}`)]
        .filter((box) => box.checked)
        .map((box) => Number(box.closest(".track").dataset.id));
    for (const row of this.rows) {
      for (const kind of ["heard", "played"]) {
        const box = this.list.querySelector(`.track[data-id="${row.id}"] input.${kind}`);
        if (box && row[kind] !== undefined) row[kind] = box.checked;
      }
    }
    this.onChoice({ heard: chosen("heard"), played: chosen("played") });
  }

  controls() {
    return [...this.list.querySelectorAll("button, input")];
  }

  /** The tab key comes to one control of the list, the arrows to the others. */
  rove(target) {
    if (!target?.matches?.("button, input")) return;
    for (const control of this.controls()) control.tabIndex = control === target ? 0 : -1;
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const item = event.target.closest(".track");
    if (!item) return;
    const letter = event.key.toLowerCase();
    if ((letter === "m" || letter === "s") && item.querySelector(".mute")) this.turn(Number(item.dataset.id), letter === "m" ? "mute" : "solo");
    else if (!this.walk(item, event)) return;
    event.preventDefault();
    event.stopPropagation();
  }

  walk(item, { key, target }) {
    const own = [...item.querySelectorAll("button, input")];
    const column = own.indexOf(target);
    const items = [...this.list.querySelectorAll(".track")];
    const row = items.indexOf(item);
    const inRow = (index) => items[index]?.querySelectorAll("button, input")[column];
    const all = this.controls();
    const next = {
      ArrowRight: all[all.indexOf(target) + 1],
      ArrowLeft: all[all.indexOf(target) - 1],
      ArrowDown: inRow(row + 1),
      ArrowUp: inRow(row - 1),
      Home: all[0],
      End: all.at(-1),
    };
    if (!(key in next)) return false;
    next[key]?.focus();
    return true;
  }
}
