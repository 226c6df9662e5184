// Sound that the server has rendered, in an audio element: what blind comparisons play, and browsers that have no
// synthesizer.

import { make, on } from "../dom.js";
import { fileUrl, pathOf, sentenceOf } from "../server.js";

const PATIENCE_MS = 60_000; // time limit for loading a sound
const NO_SOUND =
  "The sound cannot be played: its file was removed, or the program has ended. Its card below the player still has the MIDI file.";

export class Rendered {
  turn = 0; // number of the latest request
  isPending = false; // a sound is being rendered or loaded

  constructor(deck, server, calls) {
    Object.assign(this, { server, ...calls });
    this.take(deck);
  }

  take(deck) {
    this.deck?.replaceWith(deck);
    this.deck = deck;
    const heard = (call) => () => deck === this.deck && call();
    on(deck, "play pause seeked ended", heard(() => this.onChange()));
    deck.addEventListener("error", heard(() => deck.dataset.key && this.onError(sentenceOf(null, NO_SOUND))));
    this.setLevel();
  }

  get isPlaying() {
    return !this.deck.paused && !this.deck.ended;
  }

  /** Seconds of the piece. */
  get position() {
    return this.deck.currentTime;
  }

  setLevel() {
    this.deck.volume = this.level();
  }

  /**
   * Plays a sound from a second of the piece: {name, key, request}. While it is rendered, another mix of the same
   * music continues to play, and any other sound is paused.
   */
  async play(second, { name, key, request }) {
    this.turn += 1;
    const { turn } = this;
    const isLate = () => turn !== this.turn;
    try {
      if (this.deck.dataset.key !== key) {
        if (this.deck.dataset.name !== name) this.deck.pause();
        this.isPending = true;
        this.onChange();
        const src = fileUrl(await pathOf(this.server, request));
        const next = make("audio", { preload: "auto", src, "data-part": "sound", "data-name": name, "data-key": key });
        if (!isLate()) await ready(next, () => (this.isPlaying ? this.position : second));
        if (isLate()) return;
        this.deck.pause();
        this.take(next);
      } else this.deck.currentTime = second;
      await this.deck.play();
    } catch (error) {
      if (isLate() || error.name === "AbortError") return; // it was paused before it began
      console.warn(error);
      this.deck.pause(); // it would be another mix than the one that is shown
      this.onError(sentenceOf(error, NO_SOUND));
    } finally {
      if (!isLate()) this.isPending = false;
      this.onChange();
    }
  }

  pause() {
    this.turn += 1;
    this.isPending = false;
    this.deck.pause();
  }
}

/** Resolves when an audio element can play from a position of its own. */
function ready(deck, second) {
  return new Promise((resolve, reject) => {
    const events = new AbortController();
    const finish = (call, value) => {
      events.abort();
      call(value);
    };
    const look = () => deck.readyState >= 3 && !deck.seeking && finish(resolve);
    const { signal } = events;
    deck.addEventListener("loadedmetadata", () => Object.assign(deck, { currentTime: second() }), { signal });
    on(deck, "canplay seeked", look, { signal });
    deck.addEventListener("error", () => finish(reject, new Error("the file cannot be played")), { signal });
    setTimeout(() => finish(reject, new Error("the file did not load in time")), PATIENCE_MS);
  });
}
