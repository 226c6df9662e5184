// Three sources of notes: keys on the screen, keys of the computer, and a MIDI keyboard.

const FIRST = 60; // the leftmost key, unless it is moved by octaves
const OCTAVES = [-3, 3];
const VELOCITY = 84; // of keys that cannot tell how hard they are struck
// by their places on the keyboard, from C: letters differ between languages
const CODES = [
  ...["KeyA", "KeyW", "KeyS", "KeyE", "KeyD", "KeyF", "KeyT", "KeyG", "KeyY", "KeyH", "KeyU", "KeyJ"],
  ...["KeyK", "KeyO", "KeyL", "KeyP", "Semicolon", "Quote"],
];
const LETTERS = [..."AWSEDFTGYHUJKOLP;'"];
const NAMES = ["C", "C sharp", "D", "D sharp", "E", "F", "F sharp", "G", "G sharp", "A", "A sharp", "B"];
const isBlack = (semitone) => [1, 3, 6, 8, 10].includes(semitone % 12);
const NOT_HERE = "textarea, select, [contenteditable], [role=textbox], input:not([type=range], [type=checkbox], [type=radio]), .player-tracks";

/** Keys on the screen, which keys of the computer press as well. */
export class Keys {
  octave = 0;
  pressed = new Map(); // pitch by what holds it: a pointer, a code, a button
  isOpen = false;

  /** `onPress(pitch, velocity, time)`, `onRelease(pitch, time)`: times in milliseconds of the page. */
  constructor(box, { onPress, onRelease, onOctave }) {
    Object.assign(this, { box, onPress, onRelease, onOctave });
    this.buttons = CODES.map((code, semitone) => {
      const button = document.createElement("button");
      Object.assign(button, { type: "button", className: isBlack(semitone) ? "black" : "white", tabIndex: semitone ? -1 : 0 });
      button.dataset.semitone = semitone;
      const whites = LETTERS.slice(0, semitone).filter((_, before) => !isBlack(before)).length;
      button.style.gridColumn = `${isBlack(semitone) ? 2 * whites : 2 * whites + 1} / span 2`;
      button.append(Object.assign(document.createElement("span"), { textContent: LETTERS[semitone], ariaHidden: "true" }));
      return button;
    });
    box.append(...this.buttons);
    this.setOctave(0);
    this.listen();
    this.showLetters();
  }

  listen() {
    const { box } = this;
    const keyAt = ({ clientX, clientY }) => document.elementFromPoint(clientX, clientY)?.closest?.("[data-semitone]");
    box.addEventListener("pointerdown", (event) => {
      if (event.button > 0) return;
      event.target.releasePointerCapture?.(event.pointerId); // a finger may slide to other keys
      this.hold(event.pointerId, keyAt(event), event.timeStamp);
    });
    box.addEventListener("pointermove", (event) => this.pressed.has(event.pointerId) && this.hold(event.pointerId, keyAt(event), event.timeStamp));
    for (const name of ["pointerup", "pointercancel"]) document.addEventListener(name, (event) => this.letGo(event.pointerId, event.timeStamp));
    box.addEventListener("keydown", (event) => this.onKey(event));
    box.addEventListener("keyup", (event) => this.letGo(event.key, event.timeStamp));
    box.addEventListener("focusout", (event) => [" ", "Enter"].forEach((key) => this.letGo(key, event.timeStamp)));
    document.addEventListener("keydown", (event) => this.onCode(event), { capture: true });
    document.addEventListener("keyup", (event) => this.letGo(event.code, event.timeStamp), { capture: true });
    window.addEventListener("blur", (event) => this.letAllGo(event.timeStamp));
  }

  /** Presses the key of a button, and releases the one that the same pointer held. */
  hold(by, button, time) {
    const semitone = button ? Number(button.dataset.semitone) : null;
    if (this.pressed.get(by)?.semitone === semitone) return;
    this.letGo(by, time);
    if (semitone === null) {
      if (typeof by === "number") this.pressed.set(by, { semitone, pitch: null }); // the pointer is between keys
      return;
    }
    const pitch = FIRST + 12 * this.octave + semitone;
    this.pressed.set(by, { semitone, pitch });
    this.buttons[semitone].classList.add("down");
    this.onPress(pitch, VELOCITY, time);
  }

  letGo(by, time) {
    const held = this.pressed.get(by);
    if (!held) return;
    this.pressed.delete(by);
    if (held.pitch === null || [...this.pressed.values()].some(({ pitch }) => pitch === held.pitch)) return;
    this.buttons[held.semitone].classList.remove("down");
    this.onRelease(held.pitch, time);
  }

  letAllGo(time) {
    for (const by of [...this.pressed.keys()]) this.letGo(by, time);
  }

  setOctave(octave) {
    this.letAllGo(performance.now());
    this.octave = Math.max(OCTAVES[0], Math.min(octave, OCTAVES[1]));
    this.buttons.forEach((button, semitone) => {
      const place = 4 + this.octave + Math.floor(semitone / 12);
      button.ariaLabel = `${NAMES[semitone % 12]} ${place}`;
    });
    const lowest = 4 + this.octave;
    this.onOctave(`C${lowest} – F${lowest + 1}`, this.octave > OCTAVES[0], this.octave < OCTAVES[1]);
  }

  /** Keys on the screen by the keyboard: arrow keys move, the space bar and Enter play. */
  onKey(event) {
    const index = this.buttons.indexOf(event.target);
    if (index < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === " " || event.key === "Enter") {
      if (!event.repeat) this.hold(event.key, event.target, event.timeStamp);
    } else {
      const next = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: this.buttons.length - 1 }[event.key];
      if (next === undefined) return;
      const target = this.buttons[next] ?? event.target;
      for (const button of this.buttons) button.tabIndex = button === target ? 0 : -1;
      target.focus();
    }
    event.preventDefault();
  }

  /** Keys of the computer, while the keys on the screen are shown. */
  onCode(event) {
    if (!this.isOpen || !this.box.getClientRects().length || event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.(NOT_HERE)) return;
    const semitone = CODES.indexOf(event.code);
    if (semitone < 0 && event.code !== "KeyZ" && event.code !== "KeyX") return;
    event.preventDefault();
    if (event.repeat) return;
    if (semitone >= 0) this.hold(event.code, this.buttons[semitone], event.timeStamp);
    else this.setOctave(this.octave + (event.code === "KeyX" ? 1 : -1));
  }

  /** The letters of this keyboard, where the browser tells them. */
  async showLetters() {
    try {
      const layout = await navigator.keyboard?.getLayoutMap();
      if (!layout) return;
      this.buttons.forEach((button, semitone) => {
        button.firstChild.textContent = (layout.get(CODES[semitone]) ?? LETTERS[semitone]).toUpperCase();
      });
    } catch {
      // as in a browser without a window: the letters stay those of an English keyboard
    }
  }
}

export const NO_MIDI = "This browser cannot use MIDI keyboards: try Chrome, Edge or Firefox, at https or localhost.";
const REFUSED = "The browser was not allowed to use MIDI keyboards: allow it in the settings of this page.";

/**
 * Listens to all MIDI keyboards, also to those that are connected later; resolves to a sentence. What comes from a
 * port that `isOurs(name)` is an echo.
 */
export async function listenToMidi({ onPress, onRelease, onPedal, onChange }, isOurs = () => false) {
  if (!navigator.requestMIDIAccess) return NO_MIDI;
  let access;
  try {
    access = await navigator.requestMIDIAccess();
  } catch (error) {
    console.warn(error);
    return REFUSED;
  }
  const take = ({ data: [status, first, second], timeStamp }) => {
    const kind = status >> 4;
    if (kind === 9 && second > 0) onPress(first, second, timeStamp);
    else if (kind === 8 || kind === 9) onRelease(first, timeStamp);
    else if (kind === 11 && first === 64) onPedal(second, timeStamp);
  };
  let before = [];
  const connect = () => {
    const inputs = [...access.inputs.values()].filter(({ state }) => state !== "disconnected");
    for (const input of inputs) input.onmidimessage = (event) => isOurs(input.name) || take(event);
    const names = inputs.map(({ name }) => name || "unnamed");
    const gone = before.filter((name) => !names.includes(name)).join(", ");
    before = names;
    return (gone && `${gone} was unplugged. `) + (names.length ? `Listening to ${names.join(", ")}.` : "No MIDI keyboard is connected: plug one in.");
  };
  access.onstatechange = () => onChange(connect());
  return connect();
}
