// Downloads of the shown variation: the button for MIDI, and the menu of the other files.

import { fileUrl, sentenceOf } from "./server.js";

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
    this.box.addEventListener("focusout", ({ relatedTarget }) => relatedTarget && this.closeOutside(relatedTarget));
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
        const { path } = await this.server.ask("file", asked);
        this.dragged = { ...asked, path };
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
    if (isInMenu) this.more.focus({ preventScroll: true });
    this.download(button, isInMenu ? [button, this.more] : [button]);
  }

  /** Downloads a file after checking that it exists; `busy`: the buttons that show the progress. */
  async download(button, busy) {
    if (button.classList.contains("working")) return;
    for (const one of busy) one.classList.add("working");
    try {
      const { path } = await this.server.ask("file", { ...this.shown(), kind: button.dataset.kind });
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
    this.menu.hidden = !isOpen;
    this.more.setAttribute("aria-expanded", isOpen);
    if (isOpen && focus !== undefined) this.entries.at(focus)?.focus();
  }

  closeOutside(target) {
    if (!this.box.contains(target)) this.open(false);
  }

  onKey(event) {
    const all = this.entries;
    const index = all.indexOf(event.target);
    const next = { ArrowDown: (index + 1) % all.length, ArrowUp: (index - 1 + all.length) % all.length, Home: 0, End: all.length - 1 }[event.key];
    if (next !== undefined) all[next].focus();
    else if (event.key === "Escape" || event.key === "Tab") {
      this.open(false);
      this.more.focus();
      if (event.key === "Tab") return;
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
