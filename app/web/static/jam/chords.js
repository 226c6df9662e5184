// The chords of a key, on buttons and on two rows of the computer's keyboard: triads on A to J, sevenths on Q to U.

const CODES = [
  ["KeyQ", "KeyW", "KeyE", "KeyR", "KeyT", "KeyY", "KeyU"],
  ["KeyA", "KeyS", "KeyD", "KeyF", "KeyG", "KeyH", "KeyJ"],
];
const SCALES = { "": [0, 2, 4, 5, 7, 9, 11], m: [0, 2, 3, 5, 7, 8, 10] };
const KINDS = {
  "": [["maj7", "m7", "m7", "maj7", "7", "m7", "m7b5"], ["", "m", "m", "", "", "m", "dim"]],
  m: [["m7", "m7b5", "maj7", "m7", "7", "maj7", "7"], ["m", "dim", "", "m", "", "", ""]],
};
const TONES = { "": [0, 4, 7], m: [0, 3, 7], dim: [0, 3, 6], maj7: [0, 4, 7, 11], m7: [0, 3, 7, 10], 7: [0, 4, 7, 10], m7b5: [0, 3, 6, 10] };
const SHARPS = ["C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B"];
const FLATS = ["C", "Db", "D", "Eb", "E", "F", "Gb", "G", "Ab", "A", "Bb", "B"];
const WITH_SHARPS = ["G", "D", "A", "E", "B", "F#", "Em", "Bm", "F#m", "C#m", "G#m"];
const LOWEST = 53; // of the roots of the chords that are heard
const TEXTS = "textarea, [contenteditable], [role=textbox], input:not([type=range], [type=checkbox], [type=radio])";

export const KEYS = ["C", "G", "D", "A", "E", "B", "F#", "F", "Bb", "Eb", "Ab", "Db", "Am", "Em", "Bm", "F#m", "C#m", "G#m", "Dm", "Gm", "Cm", "Fm", "Bbm", "Ebm"];

/** The chords of a key, {symbol, pitches}: a row of sevenths, and one of triads. */
export function chordsOf(key) {
  const mode = key.endsWith("m") ? "m" : "";
  const names = WITH_SHARPS.includes(key) ? SHARPS : FLATS;
  const tonic = Math.max(SHARPS.indexOf(key.replace("m", "")), FLATS.indexOf(key.replace("m", "")));
  return KINDS[mode].map((kinds) =>
    kinds.map((kind, degree) => {
      const root = (tonic + SCALES[mode][degree]) % 12;
      const base = LOWEST + ((root - LOWEST + 120) % 12);
      return { symbol: names[root] + kind, pitches: TONES[kind].map((above) => base + above) };
    }),
  );
}

export class ChordKeys {
  pressed = new Map(); // chord by what holds it

  /** `onPress(chord)`, `onRelease(chord)`; `isPlaying()`: whether letters choose nothing in lists. */
  constructor(box, calls) {
    Object.assign(this, { box, ...calls });
    this.buttons = CODES.map((row) =>
      row.map((code) => {
        const button = document.createElement("button");
        button.type = "button";
        button.innerHTML = "<b></b><kbd aria-hidden='true'></kbd>";
        button.lastChild.textContent = code.at(-1);
        box.append(button);
        return button;
      }),
    );
    box.addEventListener("pointerdown", (event) => this.hold(event.pointerId, event.target.closest("button")));
    for (const name of ["pointerup", "pointercancel"]) document.addEventListener(name, (event) => this.letGo(event.pointerId));
    box.addEventListener("keydown", (event) => [" ", "Enter"].includes(event.key) && !event.repeat && this.hold(event.key, event.target, event.preventDefault()));
    box.addEventListener("keyup", (event) => this.letGo(event.key));
    document.addEventListener("keydown", (event) => this.onCode(event), { capture: true });
    document.addEventListener("keyup", (event) => this.letGo(event.code), { capture: true });
    window.addEventListener("blur", () => [...this.pressed.keys()].forEach((by) => this.letGo(by)));
    this.showLetters();
  }

  setKey(key) {
    this.chords = chordsOf(key);
    this.buttons.forEach((row, at) => row.forEach((button, degree) => (button.firstChild.innerHTML = this.chords[at][degree].symbol.replace(/^(.[#b]?)(.*)/, "$1<small>$2</small>"))));
  }

  /** Marks the chord that is followed. */
  mark(symbol) {
    for (const button of this.buttons.flat()) {
      const isOn = String(button.firstChild.textContent === symbol);
      if (button.getAttribute("aria-pressed") !== isOn) button.setAttribute("aria-pressed", isOn);
    }
  }

  hold(by, button) {
    const at = this.buttons.flat().indexOf(button);
    if (at < 0 || this.pressed.has(by)) return;
    const chord = this.chords.flat()[at];
    this.pressed.set(by, chord);
    this.onPress(chord);
  }

  letGo(by) {
    const chord = this.pressed.get(by);
    if (chord && this.pressed.delete(by)) this.onRelease(chord);
  }

  onCode(event) {
    const at = CODES.flat().indexOf(event.code);
    if (at < 0 || event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.(this.isPlaying() ? TEXTS : `select, ${TEXTS}`) || !this.box.getClientRects().length) return;
    event.preventDefault();
    event.stopPropagation();
    if (!event.repeat) this.hold(event.code, this.buttons.flat()[at]);
  }

  /** The letters of this keyboard, where the browser tells them. */
  async showLetters() {
    const layout = await navigator.keyboard?.getLayoutMap().catch(() => null);
    if (layout) this.buttons.flat().forEach((button, at) => (button.lastChild.textContent = (layout.get(CODES.flat()[at]) ?? button.lastChild.textContent).toUpperCase()));
  }
}
