// Downloads of the shown variation: the button for MIDI, and the menu of the other files.

import { closeOutside } from "./dom.js";
import { fileUrl, pathOf, sentenceOf } from "./server.js";

const NO_FILE =
  "The file is not available: it was removed, or the program has ended. Its card below the player still has the MIDI file.";

export class Files {
  /** `shown()`: {job, variation} of the files; `onError(text)`. */
  constructor(part, server, { shown, onError }) {
    Object.assign(this, { part, server, shown, onError });
    this.box = part("downloads");
    this.menu = part("menu");
    this.more = part("more"); // opens the menu
    this.buttons = [...this.box.querySelectorAll("[data-kind]")];
    for (const button of this.buttons) button.addEventListener("click", () => this.choose(button));
    this.listenToDrags(part("file-midi"));
    this.more.addEventListener("click", (event) => {
      const isOpen = this.menu.hidden;
      this.open(isOpen, isOpen && event.detail === 0 ? 0 : undefined); // by a key: focus the first entry
    });
    this.more.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.open(false);
      if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
      event.preventDefault();
      this.open(true, event.key === "ArrowDown" ? 0 : -1);
    });
    this.menu.addEventListener("keydown", (event) => this.onKey(event));
    closeOutside(this.box, () => null, () => this.open(false));
  }

  /** Offers the files of these kinds. */
  show(kinds) {
    this.box.hidden = !kinds.size;
    for (const button of this.buttons) button.hidden = !kinds.has(button.dataset.kind);
    this.more.hidden = kinds.size - kinds.has("midi") < 1;
    if (this.more.hidden) this.open(false);
  }

  /**
   * Chromium makes a file of what is dragged out of the page, for example into a music program. Its address must
   * be known when the drag begins, so it is asked for when the pointer comes.
   */
  listenToDrags(button) {
    button.draggable = true;
    button.addEventListener("pointerenter", async () => {
      const asked = { ...this.shown(), kind: button.dataset.kind };
      this.dragged = null;
      try {
        this.dragged = { ...asked, path: await pathOf(this.server, asked) };
      } catch (error) {
        console.warn(error); // a click says what is wrong
      }
    });
    button.addEventListener("dragstart", (event) => {
      const { job, variation } = this.shown();
      const { dragged } = this;
      if (dragged?.job !== job || dragged.variation !== variation) return event.preventDefault();
      const address = new URL(fileUrl(dragged.path), location.href).href;
      event.dataTransfer.effectAllowed = "copy";
      event.dataTransfer.setData("DownloadURL", `audio/midi:${dragged.path.split("/").pop()}:${address}`);
      event.dataTransfer.setData("text/uri-list", address);
    });
  }

  choose(button) {
    const isInMenu = this.menu.contains(button);
    this.open(false);
    this.download(button, isInMenu ? [button, this.more] : [button]);
  }

  /** Downloads a file after checking that it exists; `busy`: the buttons that show the progress. */
  async download(button, busy) {
    if (button.classList.contains("working")) return;
    for (const one of busy) one.classList.add("working");
    try {
      const path = await pathOf(this.server, { ...this.shown(), kind: button.dataset.kind });
      const link = document.createElement("a");
      link.href = fileUrl(path);
      const answer = await fetch(link.href, { method: "HEAD" });
      if (!answer.ok) throw new Error(`${link.href}: ${answer.status}`);
      link.download = path.split("/").pop();
      link.click();
    } catch (error) {
      console.warn(error);
      this.onError(sentenceOf(error, NO_FILE));
    } finally {
      for (const one of busy) one.classList.remove("working");
    }
  }

  get entries() {
    return [...this.menu.children].filter((entry) => !entry.hidden);
  }

  open(isOpen, focus) {
    if (!isOpen && this.menu.contains(document.activeElement)) this.more.focus({ preventScroll: true });
    this.menu.hidden = !isOpen;
    this.more.setAttribute("aria-expanded", isOpen);
    if (isOpen && focus !== undefined) this.entries.at(focus)?.focus();
  }

  onKey(event) {
    const all = this.entries;
    const index = all.indexOf(event.target);
    const next = { ArrowDown: (index + 1) % all.length, ArrowUp: (index - 1 + all.length) % all.length, Home: 0, End: all.length - 1 }[event.key];
    if (next === undefined) return;
    all[next].focus();
    event.preventDefault();
  }
}
