// The player: shows the frames of app/player/frames.py, and triggers events for the user's actions.
// A frame is the whole state, so a lost frame does no harm; its long texts (notes, bar lines, tempos)
// only grow while music is generated, and Gradio sends only what was added.

import { BlindTest } from "./compare/blind.js";
import { Variations } from "./compare/index.js";
import { BUSY_REASON, grey } from "./dom.js";
import { Files } from "./files.js";
import { Hands } from "./hands/index.js";
import { PromptRegion } from "./region.js";
import { AskedRows, linesOf, sheetWith } from "./roll/asked.js";
import { Roll } from "./roll/index.js";
import { UNITS_PER_BEAT, controlReader, isSolo, lowerBound, noteReader, rowReader, soundingLayers } from "./roll/notes.js";
import { BLANK_SCENE } from "./roll/view.js";
import { Selection } from "./selection.js";
import { PROMPT, Sound } from "./sound/index.js";
import { TempoMap } from "./tempo.js";
import { TrackList } from "./tracks.js";

const BUSY = ["waiting", "composing"];
const PEDAL = 64; // the controller
const LEAD_IN_BEATS = 8; // of the prompt, played before the new music
const TEXTS =
  "textarea, select, [contenteditable], [role=textbox], input:not([type=range], [type=checkbox], [type=radio], [type=button], [type=file])";
const PRESSED_BY_SPACE = "button, summary, a, [role=tab], [role=radio], input[type=checkbox], input[type=radio]";

class Player {
  frame = { phase: "empty", variations: [], job: "" };
  chosen = 0;
  choices = new Map(); // the chosen variation by job, for Undo
  readers = new Map(); // one for each text that grows
  tempo = new TempoMap();
  shownJob = null;
  shownFile = ""; // the prompt's tracks, which identify a piece
  isRecounted = false; // its bar lines have changed
  isEdited = false; // the next frame has the same piece after an edit
  isListOpen = false; // the table of tracks, if it can be opened
  along = { job: "" }; // the music that is played while it is written
  isLive = false; // frames of the browser are shown in place of the server's
  isByKeys = false; // whether the last input came from the keyboard

  /** `element`, `trigger`, `server`: as Gradio passes them to the script of an HTML component; `font`: see `Synth`. */
  constructor({ element, trigger, server, font }) {
    this.part = (name) => element.querySelector(`[data-part="${name}"]`);
    const { part } = this;
    this.box = part("player");
    this.trigger = trigger;
    const choose = (name, values) => {
      this.box.dataset[name] = JSON.stringify(values); // the last choice: Gradio would repeat the first one
      trigger(name, values);
    };
    const onError = (text) => {
      this.frame.alert = text;
      this.renderAlert();
    };
    this.roll = new Roll(part("roll"), part("overview"), {
      onSeek: (beat) => this.sound.seek(beat),
      onSelect: (one, other) => (one === null ? this.selection.finish() : this.selection.drag(one, other)),
      onCarry: ({ letter, count }, x, beat) => {
        this.asked.carry(beat === null ? [letter, count] : null, x);
        if (beat !== null) this.asked.drop([letter, count], beat);
      },
      onDraw: () => {
        this.asked.place();
        this.region.place();
        this.selection.place();
      },
    });
    this.asked = new AskedRows(part, this.roll, { onAsk: (asked) => trigger("plan", asked) });
    this.region = new PromptRegion(part, this.roll, { onChange: (bars) => choose("region", bars) });
    this.selection = new Selection(part, this.roll, {
      // bars of a result belong to another piece than the prompt
      onChange: (chosen) => choose("select", { ...chosen, ...(this.frame.phase === "done" ? { variation: this.chosen } : {}) }),
    });
    this.tracks = new TrackList(part("tracks"), {
      onMix: () => this.render(),
      onChoice: (ids) => choose("tracks", ids),
      onWork: (written, rests) => this.selection.setTracks(written, rests),
      onSound: (row) => this.hands.trackSound.toggle(row),
    });
    this.compare = new Variations(part("chips"), { onChoice: (index) => this.choose(index) });
    this.sound = new Sound(part, server, this.roll, { font, onError });
    this.blind = new BlindTest(part, this.sound, {
      show: (index) => {
        this.choose(index);
        if (!this.sound.isPlaying && !this.sound.engine.isPending) this.sound.play(this.sound.position);
      },
      onChange: () => {
        this.sound.pause();
        this.sound.isBlind = this.blind.isOpen;
        this.box.classList.toggle("blind", this.blind.isOpen);
        this.render();
      },
    });
    this.hands = new Hands(part, this.roll, this.sound, {
      onEdit: (edit) => {
        this.isEdited = true;
        trigger("edit", { ...edit, variation: this.shownIndex });
      },
    });
    this.files = new Files(part, server, { shown: () => ({ job: this.frame.job, variation: this.shownIndex }), onError });
    this.listen(element);
  }

  reader(key, make) {
    if (!this.readers.has(key)) this.readers.set(key, make());
    return this.readers.get(key);
  }

  layersOf(all, name, isNew) {
    return all.map((track, index) => {
      const { hue, drums, id = hue } = track;
      const notes = this.reader(`${name}/${index}/${drums}`, noteReader(drums))(track.notes);
      const longest = notes.reduce((most, note) => Math.max(most, note.off - note.on), 1);
      const controls = this.reader(`${name}/${index}/controls`, controlReader)(track.controls ?? "");
      return { ...track, id, notes, controls, longest, isNew, isQuiet: this.tracks.isQuiet(id) };
    });
  }

  /** The bars that are to be written, or were, as in frames.py; null: new music follows at the end. */
  get gap() {
    return this.frame.prompt?.gap ?? null;
  }

  /** The number of the shown variation, for the server; -1 for the prompt. */
  get shownIndex() {
    return this.frame.phase === "prompt" ? -1 : this.chosen;
  }

  get isBusy() {
    return this.frame.busy ?? BUSY.includes(this.frame.phase);
  }

  render() {
    if (this.recording) return this.renderRecording();
    const { frame, part } = this;
    const variation = frame.variations[this.chosen] ?? frame.variations[0];
    const timeline = variation?.timeline ?? frame.timeline;
    Object.assign(this.box.dataset, { phase: frame.phase, shown: this.chosen });
    this.box.classList.toggle("example", Boolean(frame.example));
    part("title").textContent = part("title").title = frame.title || "No music yet";
    part("empty").hidden = frame.phase !== "empty" || Boolean(frame.example);
    part("offers").hidden = !frame.example;
    this.renderAlert();
    this.renderProgress();
    if (timeline) this.renderMusic(variation, timeline);
    else this.renderBlank();
    this.renderActions(variation);
  }

  /** The notes that are being recorded, in place of the piece. */
  renderRecording() {
    const { notes, bar, now, isNew } = this.recording;
    const count = Math.ceil(Math.max(16, now + 2 * bar) / bar);
    const bars = Array.from({ length: count + 1 }, (_, index) => index * bar);
    const layer = { id: 0, hue: 0, drums: false, isNew: true, isQuiet: false, longest: bars.at(-1) };
    for (const name of ["empty", "offers", "actions"]) this.part(name).hidden = true;
    this.part("title").textContent = "Recording";
    this.part("subtitle").textContent = "";
    const born = -Infinity; // without a flash
    this.renderBlank({ ...BLANK_SCENE, layers: [{ ...layer, notes: notes.map((note) => ({ ...note, born })) }], bars, end: bars.at(-1), pen: now }, isNew);
  }

  renderBlank(scene = BLANK_SCENE, reset = true) {
    this.roll.show(scene, { reset });
    this.region.show({ ...BLANK_SCENE, isOpen: false });
    this.asked.show(null, [], { canAsk: false });
    this.selection.show({ bars: [], gap: null, canSelect: false, canAdd: false, isSet: false });
    [this.tempo, this.shownJob] = [new TempoMap(), this.recording ? null : this.frame.job];
    this.renderTracks([]);
    this.compare.show([], 0);
    this.renderSound([], { splice: 0, end: 0, isNew: true });
    this.hands.show(null);
  }

  renderMusic(variation, timeline) {
    const { frame, chosen } = this;
    const bars = this.reader(`bars/${chosen}`, () => rowReader(([unit]) => unit / UNITS_PER_BEAT))(timeline.bars);
    const points = this.reader(`tempos/${chosen}`, () => rowReader(([unit, ms]) => [unit / UNITS_PER_BEAT, ms / 1000]))(timeline.tempos);
    this.tempo = new TempoMap(points);
    const before = this.layersOf(frame.prompt?.tracks ?? [], "prompt", false);
    const all = frame.variations.map((one, index) => this.layersOf(one.tracks, `new/${index}`, true));
    const layers = [...before, ...(variation ? all[Math.max(0, frame.variations.indexOf(variation))] : [])];
    const { splice = 0, first = 0 } = frame.prompt ?? {};
    const sounding = soundingLayers(layers);
    const newest = sounding.map((layer) => (layer.isNew ? layer.notes.at(-1).on : 0));
    const pen = frame.phase === "composing" ? Math.max(splice, ...newest) : null;
    const isPrompt = frame.phase === "prompt";
    const cut = !isPrompt && !this.gap;
    const started = this.shownJob !== frame.job;
    const gap = this.gap && this.gapOn(bars, before, !isPrompt);
    const lines = linesOf(frame.plan, bars, splice, gap);
    const fresh = lines.length && isPrompt && !gap ? { start: splice, stop: lines.at(-1) } : null;
    const scene = { layers, bars: fresh ? [...bars.filter((bar) => bar < splice - 0.01), ...lines] : bars, fresh, beats: timeline.beats, first, splice, end: timeline.end, cut, gap, pen, sheet: variation?.sheet ?? sheetWith(frame.plan, frame) };
    this.roll.show(scene, { reset: started || this.isRecounted });
    const lastOnset = Math.max(0, ...sounding.map((layer) => layer.notes.at(-1).on));
    const canChange = frame.prompt?.first !== undefined && isPrompt && !this.isBusy;
    this.region.show({ bars, first, splice, end: lastOnset, isOpen: canChange && !gap });
    const hasBars = canChange && before.length > 0; // a piece from nothing has none yet
    const canSelect = hasBars || (frame.phase === "done" && !this.isBusy && !frame.example);
    this.asked.show(frame.plan ?? null, lines, { canAsk: isPrompt && canChange, grows: !gap });
    this.selection.show({ bars, gap: isPrompt ? this.gap : null, last: isPrompt ? null : this.gapWritten(variation), canSelect, canAdd: hasBars, isSet: hasBars });
    if (started) {
      this.shownJob = frame.job;
      if (!this.isLive && (pen !== null || frame.phase === "waiting")) this.scrollIntoView();
    }
    this.renderTracks(sounding);
    this.compare.show(frame.variations.map((one, index) => one.facts ?? factsOf(all[index])), chosen);
    this.renderSound(layers, { splice, end: timeline.end, limit: this.isLive ? Infinity : this.limitOf(bars, pen, splice), isNew: started });
    const { rows } = this.tracks;
    const canEdit = canSelect && Boolean(frame.job);
    this.hands.show(frame.example || !frame.job || this.isLive ? null : scene, { region: this.loopRegion(scene), bpm: frame.prompt?.bpm, canEdit, isBusy: this.isBusy, rows });
  }

  /** The bars and tracks that were written in a result, so that they are selected again; null: none. */
  gapWritten(variation) {
    const { gap } = this;
    if (!gap || gap.instrument === null) return gap;
    const known = new Set(this.frame.prompt.tracks.map(({ id }) => id));
    const added = (variation?.tracks ?? []).map(({ id }) => id).filter((id) => !known.has(id));
    return { ...gap, tracks: [...(gap.tracks ?? []), ...added], instrument: null };
  }

  /** The bars that are looped: those that are selected or written, the new music, or the prompt. */
  loopRegion({ gap, splice, first, end }) {
    if (gap) return { from: gap.start, to: gap.stop, text: "the selected bars" };
    if (this.frame.phase !== "prompt" && splice < end) return { from: splice, to: end, text: splice ? "the new music" : "the piece" };
    return { from: first, to: splice || end, text: "the prompt" };
  }

  /** The gap on the roll, with the ids of the tracks that are written. */
  gapOn(bars, layers, isHidden) {
    const last = bars.length - 1;
    const line = (bar) => bars[Math.max(0, Math.min(bar, last))] ?? 0;
    const { rests } = this.gap;
    const ids = new Set(layers.filter(({ played, id }) => played || rests.includes(id)).map(({ id }) => id));
    return { start: line(this.gap.first - 1), stop: line(this.gap.last), ids, isHidden };
  }

  renderTracks(layers) {
    const { frame, part, isListOpen } = this;
    const writes = Boolean(this.gap) && frame.phase === "prompt";
    const areChosen = layers.filter((layer) => layer.heard !== undefined || layer.played !== undefined).length > 1;
    const canChoose = areChosen && (!this.gap || writes); // those of a result are written already
    part("open-tracks").hidden = !canChoose || writes;
    const isOpen = isListOpen || writes;
    part("hint").hidden = !canChoose || !isOpen || writes;
    part("open-tracks").setAttribute("aria-expanded", isOpen);
    this.box.classList.toggle("with-table", canChoose && isOpen);
    this.tracks.show(layers, { canChoose, isOpen, writes, rests: this.gap?.rests ?? [], hasSound: Boolean(frame.job) && !frame.example && !this.isLive, isBusy: this.isBusy, isSolo: isSolo(layers) });
  }

  /** Up to where the music is written, in quarter notes; Infinity if all of it is. */
  limitOf(bars, pen, splice) {
    const { phase, listens, written } = this.frame;
    if (phase === "waiting") return this.gap ? Infinity : splice;
    if (pen === null) return Infinity;
    return listens && !this.chosen ? (written ?? splice) : (bars.findLast((bar) => bar <= pen + 0.01) ?? 0);
  }

  renderSound(layers, { splice, end, limit = Infinity, isNew }) {
    const { frame, chosen, tempo, roll } = this;
    const isPrompt = frame.phase === "prompt";
    const without = this.tracks.silent();
    const index = isPrompt ? -1 : chosen;
    const name = isPrompt || frame.phase === "waiting" ? PROMPT : `${frame.job}/${chosen}`;
    const request = { job: frame.job, variation: frame.example ? -1 : index, kind: "flac", without };
    this.sound.show({
      name: frame.job && name,
      wanted: frame.job && !this.isBusy ? { name, key: `${frame.job}/${index}/${without}`, request } : null,
      tracks: channelsOf(layers, roll),
      why: this.isBusy ? "It can be played when the music is written." : frame.job ? "This music has no sound." : "There is no music yet.",
      tempo,
      splice,
      end,
      limit,
      isEdited: this.isEdited,
      start: !isNew ? null : splice > 0 && frame.variations.length ? tempo.secondsAt(Math.max(0, splice - LEAD_IN_BEATS)) : 0,
    });
    if (frame.listens) this.playAlong(splice, Math.min(limit, end), end);
  }

  /** Begins to play the music that is being written, once it will not be overtaken. */
  playAlong(splice, limit, end) {
    const { frame, sound, tempo } = this;
    const isDone = frame.phase === "done";
    const isKnown = this.along.job === frame.job;
    if (!isKnown) this.along = { job: frame.job, since: 0, isOver: isDone }; // not if a page opens with finished music
    if (frame.progress > 0) this.along.since ||= performance.now(); // it has begun to write
    this.along.isOver ||= isKnown && sound.isPlaying && sound.position > tempo.secondsAt(splice);
    const [written, whole] = [limit, end].map((beat) => tempo.secondsAt(beat) - tempo.secondsAt(splice));
    const speed = (1000 * written) / (performance.now() - this.along.since);
    const isReady = isDone || (sound.hasSynth && written > 0 && written + speed * whole >= whole);
    if (this.along.isOver || !isReady || !sound.canPlay) return;
    this.along.isOver = true;
    sound.play(tempo.secondsAt(splice));
  }

  renderAlert() {
    this.part("alert").hidden = !this.frame.alert;
    this.part("alert").textContent = this.frame.alert || "";
  }

  renderProgress() {
    const { frame, part, isBusy } = this;
    const bar = part("bar");
    bar.hidden = part("stop").hidden = !isBusy;
    part("discard").hidden = !isBusy && frame.phase !== "done";
    part("subtitle").textContent = (isBusy && frame.line) || frame.subtitle || "";
    const percent = Math.round(100 * (frame.progress ?? 0));
    const isKnown = frame.phase === "composing" || percent > 0;
    bar.classList.toggle("unknown", !isKnown);
    bar.firstElementChild.style.width = `${percent}%`;
    if (isKnown) bar.setAttribute("aria-valuenow", percent);
    else bar.removeAttribute("aria-valuenow");
    if (frame.status && part("status").textContent !== frame.status) part("status").textContent = frame.status;
  }

  /** Offers the actions that the shown music allows. */
  renderActions(variation) {
    const { frame, part, isBusy } = this;
    const isDone = Boolean(variation?.files?.length) && !isBusy;
    const files = new Set((frame.phase === "prompt" ? frame.prompt?.files : variation?.files) ?? []);
    this.files.show(files);
    this.blind.offer(frame.job, frame.variations.length, isDone && !frame.example);
    part("steps").hidden = !frame.can_undo && !frame.can_redo;
    for (const [name, isPossible] of [["undo", frame.can_undo], ["redo", frame.can_redo]]) {
      grey(part(name), isBusy ? BUSY_REASON : isPossible ? "" : `There is nothing to ${name}.`);
    }
    part("settings").textContent = variation?.settings || "";
    part("actions").hidden = Boolean(frame.example) || [...part("actions").children].every((child) => child.hidden || !child.textContent);
  }

  choose(index) {
    if (index >= this.frame.variations.length || index === this.chosen) return;
    this.chosen = index;
    this.choices.set(this.frame.job, index);
    this.render();
  }

  scrollIntoView() {
    const { top } = this.box.getBoundingClientRect();
    if (top < 0 || this.roll.canvas.getBoundingClientRect().bottom > window.innerHeight) {
      this.box.scrollIntoView({ behavior: this.roll.still.matches ? "auto" : "smooth", block: "start" });
    }
  }

  listen(element) {
    const { part, roll, trigger } = this;
    const clicks = {
      stop: () => {
        part("subtitle").textContent = "Stopping …";
        trigger("stop");
      },
      discard: () => trigger("discard"),
      "like-this": () => this.sound.toggle(),
      undo: () => {
        this.expectEdit();
        trigger("undo");
      },
      redo: () => {
        this.expectEdit();
        trigger("redo");
      },
      "zoom-in": () => roll.zoom(1 / 1.5),
      "zoom-out": () => roll.zoom(1.5),
      "zoom-fit": () => roll.fit(),
      "open-tracks": () => {
        this.isListOpen = !this.isListOpen;
        this.render();
      },
    };
    for (const [name, call] of Object.entries(clicks)) part(name).addEventListener("click", call);
    roll.canvas.addEventListener("keydown", (event) => this.onRollKey(event));
    const events = new AbortController();
    const onPage = (name, call) =>
      document.addEventListener(name, (event) => (element.isConnected ? call(event) : events.abort()), { capture: true, signal: events.signal });
    onPage("played-key", (event) => this.sound.key(event.detail) && event.preventDefault());
    onPage("recording", ({ detail }) => {
      this.recording = detail && { ...detail, isNew: !this.recording };
      this.render();
    });
    onPage("lend-player", ({ detail }) => detail(this));
    onPage("keydown", (event) => this.onKey(event));
    onPage("keyup", (event) => event.key === " " && this.onKey(event));
    onPage("pointerdown", () => (this.isByKeys = false));
  }

  /** The step that is undone or redone may be an edit of the piece that is shown. */
  expectEdit() {
    this.isEdited = this.frame.phase === "prompt";
  }

  onRollKey(event) {
    const { sound, roll } = this;
    const { beat } = sound;
    const { bars } = roll;
    if (roll.canSelect && this.onSelectKey(event, beat)) {
      event.preventDefault();
      return;
    }
    const index = lowerBound(bars, beat + 0.01, (bar) => bar) - 1;
    if (event.key === "ArrowRight") sound.seek(bars[index + 1] ?? beat);
    else if (event.key === "ArrowLeft") sound.seek(bars[beat - bars[index] > 1 ? index : index - 1] ?? 0);
    else if (event.key === "Home") sound.seek(0);
    else if (event.key === "End") sound.seek(this.tempo.beatAt(this.tempo.seconds));
    else if (event.key === "+" || event.key === "=") roll.zoom(1 / 1.5);
    else if (event.key === "-") roll.zoom(1.5);
    else if (event.key === "0") roll.fit();
    else return;
    roll.lookAt(sound.beat, false);
    event.preventDefault();
  }

  /** Selects bars: Shift and an arrow key, Ctrl+A for all, Escape for none. */
  onSelectKey(event, beat) {
    const { selection } = this;
    if (event.shiftKey && event.key === "ArrowRight") selection.extend(1, beat);
    else if (event.shiftKey && event.key === "ArrowLeft") selection.extend(-1, beat);
    else if ((event.ctrlKey || event.metaKey) && event.key === "a") selection.choose(0, selection.most);
    else if (event.key === "Escape") selection.clear();
    else return false;
    return true;
  }

  /**
   * Space plays and pauses, 1 to 4 choose a variation, Ctrl+Z goes back a step and Ctrl+Shift+Z or Ctrl+Y forward,
   * unless the focused element uses these keys.
   */
  onKey(event) {
    if (["Tab", "ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"].includes(event.key)) this.isByKeys = true;
    if (event.altKey || event.target.closest?.(TEXTS)) return;
    if (!this.box.getClientRects().length) return; // the About tab hides the player
    if (event.ctrlKey || event.metaKey) {
      const way = { z: event.shiftKey ? "redo" : "undo", y: "redo" }[event.key.toLowerCase()];
      if (!way) return;
      event.preventDefault();
      this.part(way).click();
      return;
    }
    if (event.key === " ") {
      if (this.isByKeys && event.target.closest?.(PRESSED_BY_SPACE)) return;
      event.preventDefault();
      event.stopPropagation();
      if (event.type === "keydown" && !event.repeat) this.sound.toggle();
    } else if (event.type === "keydown" && !this.blind.isOpen && /^[1-4]$/.test(event.key)) this.choose(Number(event.key) - 1);
  }

  /** Takes a frame of the server. */
  accept(frame) {
    this.latest = frame;
    if (!this.isLive) this.show(frame);
  }

  /** Shows a frame that the browser has made, of music that is made while it plays; null: that of the server again. */
  live(frame) {
    if (frame && this.isLive) frame.alert = this.frame.alert;
    this.isLive = this.sound.isLive = Boolean(frame);
    if (!frame) this.sound.spare.clear();
    if (frame || this.latest) this.show(frame ?? this.latest);
  }

  show(next) {
    const { frame } = this;
    const file = JSON.stringify([next.title, (next.prompt?.tracks ?? []).map((track) => [track.name, track.notes])]);
    this.isEdited &&= next.phase === "prompt" && !next.alert && next.job !== frame.job && next.title === frame.title;
    const isSameFile = file === this.shownFile || this.isEdited;
    const isMoved = isSameFile && next.phase === "prompt" && (this.isEdited || frame.phase === "prompt"); // another region of it
    if (!isSameFile) {
      this.tracks.clear();
      this.sound.reset();
    }
    this.isRecounted = isMoved && next.timeline?.bars !== frame.timeline?.bars;
    if (isMoved) this.shownJob = next.job;
    else if (next.job !== this.shownJob) {
      this.readers = new Map();
      this.chosen = Math.min(this.choices.get(next.job) ?? 0, Math.max(0, next.variations.length - 1));
    }
    [this.frame, this.shownFile] = [next, file];
    this.render();
    this.isRecounted = this.isEdited = false;
  }
}

function factsOf(layers) {
  const notes = layers.reduce((sum, layer) => sum + layer.notes.length, 0);
  return notes === 1 ? "1 note" : `${notes} notes`;
}

/** What the synthesizer plays: the notes that the roll shows, by track. */
function channelsOf(layers, roll) {
  const channels = new Map();
  for (const layer of layers) {
    const { id, program, drums, isQuiet } = layer;
    if (!channels.has(id)) channels.set(id, { id, program: program ?? 0, drums, gain: isQuiet ? 0 : 1, notes: [], controls: [] });
    const { notes, controls } = channels.get(id);
    for (const note of layer.notes) {
      const off = roll.seenEnd(layer, note);
      if (off !== null) notes.push({ ...note, stop: layer.drums ? note.stop : off });
    }
    const isCut = !layer.isNew && roll.cut && roll.splice > 0;
    controls.push(...(isCut ? layer.controls.filter(({ at }) => at < roll.splice) : layer.controls));
    if (isCut && layer.controls.length) controls.push({ at: roll.splice, kind: PEDAL, value: 0 });
  }
  return [...channels.values()];
}

/** Starts the player of an HTML component with what Gradio passes to its script; `font`: path of the SoundFont. */
export function start({ props, watch, root, ...gradio }, { font }) {
  const player = new Player({ ...gradio, font: font && root + font });
  const accept = () => {
    if (props.value) player.accept(JSON.parse(JSON.stringify(props.value))); // a plain copy of a reactive value
  };
  watch("value", accept);
  accept();
}
