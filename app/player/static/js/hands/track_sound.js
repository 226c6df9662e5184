// Instrument and volume of a track, in a small window next to its row. They are edits of the piece.

import { BUSY_REASON, closeOutside, grey, write } from "../dom.js";

const DRUMS = 128; // in the list of instruments

export class TrackSound {
  id = null; // of the track whose window is open

  /** `onChange(edit)`: {programs, volumes} as in edits.py. */
  constructor(part, { onChange }) {
    Object.assign(this, { part, onChange, box: part("track-sound") });
    const [program, volume] = [part("track-program"), part("track-volume")];
    program.addEventListener("change", () => onChange({ programs: [[this.id, Number(program.value)]] }));
    volume.addEventListener("input", () => this.say());
    volume.addEventListener("change", () => onChange({ volumes: [[this.id, Number(volume.value)]] }));
    part("track-sound-close").addEventListener("click", () => this.close());
    closeOutside(this.box, () => this.opener, () => this.close());
  }

  /** The button that opens the window; the list of tracks may have made it anew. */
  get opener() {
    return this.part("tracks").querySelector(`.track[data-id="${this.id}"] .sound`);
  }

  /** Opens the window of a track, or closes it. */
  toggle(row) {
    const wasOpen = this.id === row.id;
    this.close();
    if (wasOpen) return;
    const { part } = this;
    const program = part("track-program");
    if (!program.options.length) {
      const all = [...part("instrument").options].filter(({ value }) => value !== "" && Number(value) < DRUMS);
      program.append(...all.map((option) => option.cloneNode(true)));
    }
    this.id = row.id;
    this.box.hidden = false;
    this.show([row], this.isBusy);
    this.box.scrollIntoView({ block: "nearest" });
    (row.program === undefined ? part("track-volume") : program).focus();
  }

  /** Shows the sound of the track as it is now in the piece. */
  show(rows, isBusy) {
    this.isBusy = isBusy;
    if (this.id === null) return;
    const row = rows.find(({ id }) => id === this.id);
    if (!row) return this.close();
    const { part } = this;
    this.opener?.setAttribute("aria-expanded", true);
    write(part("track-of"), row.name);
    part("track-program-label").hidden = row.program === undefined;
    if (row.program !== undefined) part("track-program").value = row.program;
    part("track-volume").value = row.volume ?? 100;
    for (const name of ["track-program", "track-volume"]) grey(part(name), isBusy ? BUSY_REASON : "");
    this.say();
  }

  say() {
    write(this.part("track-volume-value"), this.part("track-volume").value);
  }

  close() {
    if (this.id === null) return;
    const hadFocus = this.box.contains(document.activeElement);
    this.box.hidden = true;
    this.opener?.setAttribute("aria-expanded", false);
    if (hadFocus) this.opener?.focus();
    this.id = null;
  }
}
