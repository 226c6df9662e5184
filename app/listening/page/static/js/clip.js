// A clip with its player. It measures which parts have really been played: time counts only while
// the position in the audio moves as fast as the clock, so that seeking adds nothing.
import { icon, make, minutesSeconds } from "./dom.js";

const PLAY = "M8 5.2v13.6a.8.8 0 0 0 1.2.7l10.6-6.8a.8.8 0 0 0 0-1.4L9.2 4.5A.8.8 0 0 0 8 5.2z";
const PAUSE = "M7 5h3.4v14H7zM13.6 5H17v14h-3.4z";
const PARTS = 10; // parts of a second
const STEP = 2; // seconds of an arrow key

let playing = null; // only one clip plays at a time

export class Clip {
  // `seconds`: without the fade; `newSeconds`: where the new music begins; `needed`: seconds to
  // play; `load`: promises the address of the audio; `onheard`: called when more has been heard.
  constructor({ label, seconds, newSeconds, needed, load, onheard = () => {} }) {
    Object.assign(this, { label, seconds, newSeconds, needed, load, onheard });
    this.played = 0; // seconds of playing, with repetitions
    this.parts = new Uint8Array(Math.ceil((seconds + 30) * PARTS));
    this.heardParts = 0;
    this.last = null;
    this.audio = new Audio();
    this.audio.preload = "auto";
    this.build();
    this.listen();
    this.fetch();
  }

  // Seconds of different parts that have been heard.
  get heard() {
    return this.heardParts / PARTS;
  }

  get isHeard() {
    return this.left <= 1 / PARTS;
  }

  // Parts are rounded up, so that the time of playing counts too.
  get left() {
    return Math.max(0, this.needed - Math.min(this.heard, this.played));
  }

  build() {
    this.button = make("button", { type: "button", className: "play", disabled: true },
      icon(PLAY), icon(PAUSE));
    this.bar = make("div", { className: "bar", role: "slider", tabIndex: 0,
      "aria-label": `Position in ${this.label}`, "aria-valuemin": 0 },
      make("div", { className: "heard" }), make("div", { className: "head" }));
    this.time = make("span", { className: "time" });
    this.error = make("p", { className: "alert", role: "alert", hidden: true });
    const share = `${(100 * this.newSeconds) / (this.seconds + 2)}%`;
    const named = this.newSeconds > 0.05;
    this.bar.style.setProperty("--new", named ? share : "0%");
    const legend = make("div", { className: "legend", "aria-hidden": "true" },
      make("span", {}, named ? "beginning" : ""), make("span", {}, named ? "new music" : ""));
    legend.style.setProperty("--new", named ? share : "0%");
    this.element = make("section", { className: "clip loading", "aria-label": this.label },
      make("h3", {}, this.label),
      make("div", { className: "transport" }, this.button,
        make("div", { className: "line" }, this.bar, named ? legend : null), this.time),
      this.error);
    this.draw();
  }

  async fetch() {
    this.error.hidden = true;
    this.element.classList.add("loading");
    try {
      this.audio.src = await this.load();
    } catch {
      this.fail("The clip could not be loaded. Check your connection.");
    }
  }

  fail(message) {
    const again = make("button", { type: "button", onclick: () => this.fetch() }, "Try again");
    this.error.replaceChildren(message, " ", again);
    this.error.hidden = false;
  }

  listen() {
    const { audio } = this;
    audio.addEventListener("canplay", () => {
      this.element.classList.remove("loading");
      this.button.disabled = false;
      this.draw();
    });
    audio.addEventListener("error", () => this.fail("This browser cannot play the clip."));
    audio.addEventListener("play", () => {
      if (playing && playing !== this) playing.pause();
      playing = this;
      this.element.classList.add("playing");
      this.animate();
    });
    audio.addEventListener("seeking", () => (this.last = null));
    audio.addEventListener("seeked", () => this.draw());
    audio.addEventListener("timeupdate", () => this.measure());
    for (const name of ["pause", "ended"]) {
      audio.addEventListener(name, () => {
        this.measure();
        this.last = null;
        this.element.classList.remove("playing");
        this.draw();
      });
    }
    this.button.addEventListener("click", () => this.toggle());
    this.bar.addEventListener("pointerdown", (event) => this.drag(event));
    this.bar.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -STEP, ArrowRight: STEP }[event.key];
      if (step === undefined && event.key !== " ") return;
      event.preventDefault();
      if (step) this.seek(audio.currentTime + step);
      else this.toggle();
    });
  }

  toggle() {
    if (!this.audio.paused) this.audio.pause();
    else this.audio.play().catch(() => this.fail("The browser did not play the clip."));
  }

  pause() {
    this.audio.pause();
  }

  seek(second) {
    if (!Number.isFinite(this.audio.duration)) return;
    this.measure();
    this.last = null;
    this.audio.currentTime = Math.min(Math.max(0, second), this.audio.duration - 0.05);
    this.draw();
  }

  drag(event) {
    const to = ({ clientX }) => {
      const { left, width } = this.bar.getBoundingClientRect();
      this.seek(((clientX - left) / width) * this.audio.duration);
    };
    this.bar.setPointerCapture(event.pointerId);
    to(event);
    this.bar.onpointermove = to;
    this.bar.onpointerup = this.bar.onpointercancel = () => (this.bar.onpointermove = null);
  }

  // Adds the time since the last call, if it was played.
  measure() {
    const { audio, last } = this;
    const now = { media: audio.currentTime, clock: performance.now() / 1000 };
    this.last = audio.paused && !audio.ended ? null : now;
    if (!last || audio.seeking || audio.muted) return;
    const moved = now.media - last.media;
    const passed = now.clock - last.clock;
    if (moved <= 0 || moved > passed + 0.25 + passed / 10) return;
    this.played += moved;
    const end = Math.min(this.parts.length - 1, Math.floor(now.media * PARTS));
    const before = this.isHeard;
    for (let part = Math.floor(last.media * PARTS); part <= end; part += 1) {
      this.heardParts += 1 - this.parts[part];
      this.parts[part] = 1;
    }
    this.onheard(this.isHeard && !before);
  }

  animate() {
    if (this.audio.paused) return;
    this.measure();
    this.draw();
    requestAnimationFrame(() => this.animate());
  }

  draw() {
    const length = Number.isFinite(this.audio.duration) ? this.audio.duration : this.seconds + 2;
    const at = this.audio.currentTime;
    this.bar.lastChild.style.left = `${(100 * at) / length}%`;
    this.bar.firstChild.style.backgroundImage = this.heardRanges(length);
    this.bar.setAttribute("aria-valuemax", length.toFixed(0));
    this.bar.setAttribute("aria-valuenow", at.toFixed(0));
    this.bar.setAttribute("aria-valuetext", `${minutesSeconds(at)} of ${minutesSeconds(length)}`);
    this.time.textContent = `${minutesSeconds(at)} / ${minutesSeconds(length)}`;
    const part = this.needed ? Math.min(1, this.heard / this.needed) : 0;
    this.button.style.setProperty("--heard", `${(360 * part).toFixed(1)}deg`);
    this.element.classList.toggle("complete", this.needed > 0 && this.isHeard);
    const action = this.audio.paused ? "Play" : "Pause";
    this.button.setAttribute("aria-label", `${action} ${this.label}`);
  }

  // The parts that have been heard, as a gradient.
  heardRanges(length) {
    const colour = "var(--heard-colour)";
    const stops = [];
    const place = (part) => `${((100 * part) / PARTS / length).toFixed(2)}%`;
    for (let part = 0; part < this.parts.length; part += 1) {
      if (!this.parts[part] || (part && this.parts[part - 1])) continue;
      let end = part;
      while (this.parts[end]) end += 1;
      stops.push(`transparent ${place(part)}`, `${colour} ${place(part)}`,
        `${colour} ${place(end)}`, `transparent ${place(end)}`);
    }
    return stops.length ? `linear-gradient(to right, ${stops.join(", ")})` : "none";
  }

  close() {
    this.audio.pause();
    this.audio.removeAttribute("src");
    if (playing === this) playing = null;
  }
}
