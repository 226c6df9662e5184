// The sound: a mix of the tracks, rendered by the server, or a file named in a frame; its position, the
// transport buttons, and the gapless change from one sound to another. Positions are seconds of the
// piece. A sound may begin later than the piece, since rendering all of a long piece takes a while.

import { grey, on, write } from "./dom.js";
import { Live } from "./live.js";
import { fileUrl, sentenceOf } from "./server.js";
import { TempoMap } from "./tempo.js";

const FADE_MS = 60; // of the cross-fade from one sound to the next
const LEAD_SECONDS = 0.2; // how far ahead the next sound is prepared while the other plays
const START_SECONDS = 0.012; // latency of an audio element
const PATIENCE_MS = 60_000; // time limit for loading a sound
const NO_SOUND =
  "The sound cannot be played: its file was removed, or the program has ended. Generate the music again with the settings below.";

const MARGIN_SECONDS = 10; // how long before the position a sound begins
const STEP_SECONDS = 30; // sounds begin at multiples of this, so that moving back a little needs no other one

const wait = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

const clock = (seconds) => {
  const whole = Math.max(0, Math.floor(seconds));
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
};

export class Sound {
  isNewPiece = true; // nothing of this piece has been played yet
  wanted = null; // {name, key, second, and path or request} of the sound that is shown, if there is one
  tempo = new TempoMap();
  cursor = 0; // position in seconds while no sound is loaded
  changes = 0; // number of the latest change of sound
  making = ""; // key of the sound that is being rendered
  failed = ""; // key of the sound that failed
  willPlay = false; // whether the sound that is being rendered will be played at once

  /**
   * `onMix(isHeard)`: whether the requested mix is now audible, or has failed; `onMove()`: the loaded
   * sound does not contain the position; `onError(text)`.
   */
  constructor(part, server, roll, { onMix, onMove, onError }) {
    Object.assign(this, { part, server, roll, onMix, onMove, onError });
    this.box = part("player");
    this.deck = part("sound"); // the audible audio element
    this.spare = part("spare"); // the one that loads the next sound
    this.shown = Object.fromEntries(["now", "total", "play", "roll"].map((name) => [name, part(name)]));
    for (const deck of [this.deck, this.spare]) {
      const heard = (call) => (event) => event.target === this.deck && call();
      deck.addEventListener("play", heard(() => this.animate()));
      on(deck, "pause loadedmetadata seeked ended", heard(() => this.showTime()));
      deck.addEventListener("error", heard(() => this.isLoaded && onError(NO_SOUND)));
    }
    this.live = new Live(this.box, {
      level: () => this.level,
      onMove: () => this.showTime(),
      onStart: (second) => roll.lookAt(this.tempo.beatAt(second), false),
      onEnd: () => this.showTime(),
    });
    this.deck.volume = this.level;
    part("volume").addEventListener("input", () => {
      this.deck.volume = this.level;
      this.live.setLevel(this.level);
    });
    part("play").addEventListener("click", () => this.toggle());
    part("from-start").addEventListener("click", () => this.jump(0));
    part("from-splice").addEventListener("click", () => this.jump(this.splice));
  }

  get level() {
    return this.part("volume").value ** 2;
  }

  get isLoaded() {
    return Boolean(this.deck.dataset.key);
  }

  get position() {
    if (this.live.isOn) return this.live.position;
    return this.isLoaded ? placeOf(this.deck) : this.cursor;
  }

  get beat() {
    return this.tempo.beatAt(this.position);
  }

  /**
   * The second from which the sound `name` is to be requested. `start`: where a new piece is played
   * from; `ready`: the second from which it is rendered already.
   */
  secondOf(name, start, ready = Infinity) {
    const at = this.isNewPiece ? start : this.position;
    const { dataset } = this.deck;
    const loaded = dataset.name === name ? Number(dataset.second) : Infinity;
    const coming = this.making && this.wanted?.name === name ? this.wanted.second : Infinity;
    const known = [coming, loaded, ready].find((second) => second <= at);
    return known ?? Math.max(0, Math.floor((at - MARGIN_SECONDS) / STEP_SECONDS) * STEP_SECONDS);
  }

  /**
   * Loads the wanted sound, if there is one; that of an upload only on request. `start`: the position
   * in seconds of a new piece; `isComing`: the server is rendering it; `why` there is no sound.
   */
  show({ wanted, why, job, tempo, splice, start, isComing, frame }) {
    this.live.show(frame);
    const isNew = this.deck.dataset.job !== job;
    Object.assign(this, { wanted, job, tempo, splice, start, isComing });
    this.part("from-splice").hidden = splice <= 0;
    for (const name of ["play", "from-start", "from-splice"]) grey(this.part(name), wanted || (name === "play" && this.live.canPlay) ? "" : why);
    if (!wanted) this.drop();
    else if (wanted.key === this.deck.dataset.key) this.cancel();
    else if (wanted.key !== this.making && wanted.key !== this.failed) {
      const isPrompt = wanted.request?.variation === -1;
      if (this.resumes) this.tune(true);
      else if (isPrompt && (!this.isLoaded || isNew)) this.drop();
      else this.tune(!this.deck.paused);
    }
    this.resumes = false;
    this.showTime();
  }

  /** Allows a sound that failed to be requested again. */
  retry() {
    this.failed = "";
  }

  /** Forgets the sound of a piece, and the position in it. */
  reset() {
    this.drop();
    this.cursor = 0;
  }

  /** Ignores the sound that is being rendered. */
  cancel() {
    if (this.making) this.changes += 1;
    this.making = "";
  }

  drop() {
    this.cancel();
    if (!this.isLoaded) return;
    this.cursor = this.position;
    for (const deck of [this.deck, this.spare]) {
      Object.assign(deck.dataset, { key: "", job: "", name: "", second: 0, begin: 0 });
      deck.pause();
      deck.removeAttribute("src");
      deck.load();
    }
  }

  /** Changes to the wanted sound, at the same position and without a gap; `plays`: starts it. */
  async tune(plays) {
    const { wanted } = this;
    this.changes += 1;
    this.willPlay = plays;
    const turn = this.changes;
    const isLate = () => turn !== this.changes;
    this.making = wanted.key;
    this.showTime();
    try {
      const { path, begin = wanted.path ? wanted.second : 0 } = wanted.path ? wanted : await this.server.ask("mix", wanted.request);
      if (isLate()) return;
      const at = this.isNewPiece ? this.start : this.position;
      await load(this.spare, fileUrl(path), Math.max(0, at - begin));
      if (isLate()) return;
      const { key, name, second } = wanted;
      Object.assign(this.spare.dataset, { key, name, second, begin, job: this.job });
      this.onMix(true);
      if (!this.deck.paused && !this.isNewPiece) await this.meet(isLate);
      else move(this.spare, this.isNewPiece ? at : this.position);
      if (isLate()) return;
      this.exchange(plays);
      if (this.isNewPiece && !this.live.isOn) this.roll.lookAt(this.tempo.beatAt(at), false);
      this.isNewPiece = false;
    } catch (error) {
      if (isLate()) return;
      console.warn(error);
      this.failed = wanted.key;
      this.making = "";
      this.onMix(false);
      this.onError(sentenceOf(error, NO_SOUND));
    } finally {
      if (!isLate()) this.making = "";
      this.showTime();
    }
  }

  /** Positions the spare a little ahead, and waits until the playing sound reaches it. */
  async meet(isLate) {
    const { deck, spare } = this;
    for (let lead = LEAD_SECONDS; lead < 4; lead *= 2) {
      move(spare, placeOf(deck) + lead);
      await ready(spare);
      if (isLate() || deck.paused || placeOf(spare) > placeOf(deck) + START_SECONDS) break;
    }
    while (!isLate() && !deck.paused) {
      const left = 1000 * (placeOf(spare) - placeOf(deck) - START_SECONDS);
      if (left <= 0 || left > 5000) break; // the user may have moved the position
      await wait(Math.min(left, 40));
    }
    if (deck.paused || Math.abs(placeOf(spare) - placeOf(deck)) > 0.1) move(spare, placeOf(deck));
  }

  /** Puts the spare element at a second of the loaded sound, where it waits to be exchanged. */
  async wait(second) {
    const { deck, spare } = this;
    const { key, name, job, begin, second: from } = deck.dataset;
    if (second < Number(begin) || !spare.paused) return;
    if (spare.src !== deck.src) spare.src = deck.src;
    Object.assign(spare.dataset, { key, name, job, begin, second: from });
    move(spare, second);
    await ready(spare);
  }

  isWaiting(second) {
    const { deck, spare } = this;
    return spare.paused && spare.dataset.key === deck.dataset.key && spare.readyState >= 3 && !spare.seeking && Math.abs(placeOf(spare) - second) < 0.01;
  }

  /** Prepares for the sound of the same piece after an edit, at the same beat of another tempo map. */
  retime(tempo) {
    const { beat } = this;
    this.resumes = this.isLoaded ? !this.deck.paused : Boolean(this.making) && this.willPlay;
    this.drop();
    [this.cursor, this.isNewPiece] = [tempo.secondsAt(beat), false];
  }

  /** Makes the spare element audible, with a cross-fade if the other one is playing. */
  exchange(plays) {
    const old = this.deck;
    const wasPlaying = !old.paused;
    [this.deck, this.spare] = [this.spare, old];
    this.box.append(old); // keeps the audible element first
    this.deck.volume = wasPlaying ? 0 : this.level;
    if (wasPlaying || plays) this.play();
    if (wasPlaying) this.crossFade(old, this.deck);
  }

  async crossFade(old, next) {
    await new Promise((resolve) => {
      next.addEventListener("playing", resolve, { once: true });
      setTimeout(resolve, 250);
    });
    const begin = performance.now();
    for (let share = 0; share < 1 && !next.paused && next === this.deck; await wait(8)) {
      share = Math.min(1, (performance.now() - begin) / FADE_MS);
      next.volume = this.level * Math.sin((share * Math.PI) / 2);
      old.volume = this.level * Math.cos((share * Math.PI) / 2);
    }
    if (old !== this.deck) old.pause();
    if (next === this.deck) next.volume = this.level;
  }

  showTime() {
    const { shown, deck, box, roll } = this;
    const now = this.position;
    const whole = this.isLoaded && Number.isFinite(deck.duration) ? endOf(deck) : this.tempo.seconds;
    const isLive = this.live.isOn;
    const isPlaying = isLive || (this.isLoaded && !deck.paused);
    const isPending = !isLive && (Boolean(this.making) || this.isComing);
    write(shown.now, clock(now));
    write(shown.total, ` / ${clock(whole)}`);
    box.classList.toggle("playing", isPlaying);
    box.classList.toggle("making", isPending);
    const label = isPending ? "Rendering the sound" : isPlaying ? "Pause" : "Play";
    write(shown.play, label, "aria-label");
    if (this.wanted) write(shown.play, isPending ? `${label} …` : `${label} (space bar)`, "title");
    write(shown.roll, Math.round(whole), "aria-valuemax");
    write(shown.roll, Math.round(now), "aria-valuenow");
    write(shown.roll, `${clock(now)} of ${clock(whole)}`, "aria-valuetext");
    roll.isPlaying = isPlaying;
    roll.setPlayhead(this.wanted || isLive ? this.beat : null, isPlaying);
  }

  animate() {
    this.showTime();
    this.onStep?.();
    if (!this.deck.paused) requestAnimationFrame(() => this.animate());
  }

  seek(beat) {
    const wasLive = this.live.isOn;
    this.live.stop();
    if (!this.wanted) {
      if (wasLive) this.live.play(this.tempo.secondsAt(beat));
      return;
    }
    const seconds = this.tempo.secondsAt(beat);
    this.cursor = Math.max(0, Math.min(seconds, (this.isLoaded && endOf(this.deck)) || this.tempo.seconds || seconds));
    const from = this.isLoaded ? Number(this.deck.dataset.second) : this.making ? this.wanted.second : Infinity;
    if (this.cursor < from) this.leave(this.cursor, wasLive);
    else if (this.isLoaded) {
      move(this.deck, this.cursor);
      if (wasLive) this.play();
    } else if (wasLive && this.making) {
      this.isNewPiece = false;
      this.tune(true);
    }
    this.isNewPiece = this.isNewPiece && this.isLoaded;
    this.roll.follow = true;
    this.showTime();
  }

  /** Seeks to a time that the loaded sound does not contain, and continues to play there. */
  leave(second, plays = false) {
    const isPlaying = plays || (this.isLoaded ? !this.deck.paused : Boolean(this.making) && this.willPlay);
    this.drop();
    [this.cursor, this.isNewPiece] = [second, false];
    this.onMove();
    if (isPlaying) this.tune(true);
  }

  jump(beat) {
    this.seek(beat);
    this.roll.lookAt(beat, false);
  }

  play() {
    this.deck.play().catch((error) => {
      if (error.name !== "AbortError") this.onError(NO_SOUND); // AbortError: paused before it began
    });
  }

  /** Plays the rendered sound in place of that which is heard while it is written. */
  leaveLive() {
    if (this.live.isOn) this.seek(this.beat);
  }

  pauseLive() {
    const { beat, position } = this;
    this.live.stop();
    [this.cursor, this.isNewPiece] = [position, false];
    this.seek(beat);
    this.showTime();
  }

  toggle() {
    if (this.live.isOn) return this.pauseLive();
    if (!this.wanted && this.live.canPlay) return this.live.play(this.cursor);
    if (!this.wanted) return;
    this.roll.follow = true;
    if (!this.isLoaded) {
      if (!this.making) this.tune(true);
    } else if (this.deck.paused) this.play();
    else this.deck.pause();
  }
}

/** The position of an audio element in the piece. */
const placeOf = (deck) => deck.currentTime + Number(deck.dataset.begin || 0);

const endOf = (deck) => deck.duration + Number(deck.dataset.begin || 0);

function move(deck, second) {
  deck.currentTime = Math.max(0, second - Number(deck.dataset.begin || 0));
}

/** Resolves when an audio element can play from a position of its own. */
function load(deck, url, at) {
  deck.pause();
  deck.src = url;
  deck.currentTime = at;
  return ready(deck);
}

function ready(deck) {
  const isReady = () => deck.readyState >= 3 && !deck.seeking;
  if (isReady()) return Promise.resolve();
  return new Promise((resolve, reject) => {
    const events = new AbortController();
    const finish = (call, value) => {
      events.abort();
      call(value);
    };
    const look = () => isReady() && finish(resolve);
    on(deck, "canplay seeked", look, { signal: events.signal });
    deck.addEventListener("error", () => finish(reject, new Error("the file cannot be played")), { signal: events.signal });
    setTimeout(() => finish(reject, new Error("the file did not load in time")), PATIENCE_MS);
  });
}
