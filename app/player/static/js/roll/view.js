// The state of the roll: the notes, the range of keys, the part of the piece in view, and how the view moves.

import { NUM_HUES, drumPlace, isSolo, soundingLayers } from "./notes.js";
import { fitCanvas } from "./pen.js";

export const RULER = 36; // height of the bar numbers, with the region of the prompt and the playhead's knob below them
export const ROW = 26; // height of the row of sections and of that of chords, below the ruler
export const BAND = 20; // top of that region in the ruler
export const LANE_EDGE = 2; // pixels above and below the drums
const LEAST_SEMITONES = 30;
const EASE_MS = 80; // time in which the view moves two thirds of the way
const EDGE = 1 / 24; // in quarter notes: what begins so shortly before a bar line belongs to the bar after it
const SPARE = 1.06; // factor of the span of a piece that is shown whole, for some room at its end
const MANY_NOTES = 3000; // from this many on, a change of the range of keys is not animated

/** The scene of an unknown piece. */
export const BLANK_SCENE = {
  layers: [], // {id, notes, longest, hue, drums, isNew, isQuiet}
  bars: [0, 4, 8, 12, 16],
  beats: true, // whether quarter notes are beats
  first: 0, // start of the region of the prompt
  splice: 0, // its end
  end: 16,
  cut: false, // whether notes of the prompt after the splice are hidden
  gap: null, // {start, stop, ids, isHidden}: the bars that are written, their tracks, and whether these have no old notes
  pen: null, // where the model is generating
  sheet: null, // {sections, chords} as in frames.py
  fresh: null, // {start, stop}: bars that are not written yet, after the end
};

export class RollView {
  constructor(canvas, { onSeek, onSelect, onCarry, onDraw }) {
    Object.assign(this, BLANK_SCENE, { canvas, onSeek, onSelect, onCarry, onDraw });
    this.canSelect = false; // whether bars are selected by dragging
    this.still = window.matchMedia("(prefers-reduced-motion: reduce)");
    this.isSolo = true; // whether there is at most one instrument
    this.playhead = null;
    this.follow = true;
    this.view = { start: 0, span: 32 };
    this.target = { start: 0, span: 32 };
    this.low = 48;
    this.high = 84;
    this.hasKeyboard = true;
    this.drums = []; // keys that occur, from the bottom row
    this.lane = 0; // height of the drums in pixels
    this.pending = 0;
    this.readColours();
    new ResizeObserver(() => this.resize()).observe(canvas);
    new MutationObserver(() => {
      this.readColours();
      this.request();
    }).observe(document.body, { attributes: true, attributeFilter: ["class"] });
    this.resize();
  }

  readColours() {
    const style = getComputedStyle(this.canvas);
    const colour = (name) => style.getPropertyValue(`--roll-${name}`).trim();
    this.colours = {};
    const names = ["paper", "shade", "row", "beat", "bar", "text", "label", "white", "black", "edge", "head", "flash", "accent"];
    for (let hue = 0; hue < NUM_HUES; hue += 1) names.push(`old-${hue}`, `new-${hue}`);
    for (const name of names) this.colours[name] = colour(name);
    this.isStale = this.mapIsStale = true;
    this.font = style.fontFamily;
  }

  resize() {
    fitCanvas(this.canvas);
    this.isStale = this.mapIsStale = true;
    this.layOut();
    this.lane = this.wantedLane;
    this.request();
  }

  /** Where the notes begin: below the ruler and the rows of form and chords. */
  get top() {
    return RULER + (this.sheet ? 2 * ROW : 0);
  }

  /** Room for the keys on the left and for the drums below. */
  layOut() {
    const isNarrow = this.canvas.clientWidth < 560;
    const room = this.canvas.clientHeight - this.top;
    this.keys = isNarrow ? 26 : 44;
    this.wantedLane = 0;
    if (!this.drums.length) return;
    this.keys = isNarrow && this.hasKeyboard ? 34 : 66;
    const rows = this.drums.length * Math.max(7, Math.min(room / 40, 13)) + 2 * LANE_EDGE;
    this.wantedLane = this.hasKeyboard ? Math.min(Math.max(rows, 24), room * 0.4) : room;
  }

  /** Beats that fit comfortably: about 20 pixels each, never less than six bars of four. */
  comfortableSpan() {
    return Math.max(24, (this.canvas.clientWidth - this.keys) / 20);
  }

  show(scene, { reset }) {
    const cutOf = ({ cut, splice, gap }) => [cut && splice, gap?.isHidden && [gap.start, gap.stop, ...gap.ids]].join();
    const cuts = cutOf(scene) !== cutOf(this);
    if (reset || cuts) this.isStale = true;
    Object.assign(this, scene, {
      layers: soundingLayers(scene.layers),
      isSolo: isSolo(scene.layers),
      bars: scene.bars.length ? scene.bars : [0],
      end: Math.max(scene.end, 4),
    });
    this.mapIsStale = true;
    this.measure();
    this.layOut();
    if (reset) {
      [this.low, this.high] = this.wanted;
      this.lane = this.wantedLane;
      this.follow = true;
      this.target.span = Math.min(this.comfortableSpan(), this.end * SPARE);
      if (scene.cut || !this.splice) this.lookAt(this.splice, true);
      else this.showRegion();
    } else if (this.follow && this.pen !== null && !this.isPlaying) {
      this.lookAt(this.pen, false);
    }
    this.pan(this.target.start); // the piece may have become shorter
  }

  /** Shows the whole region of the prompt, or as much of its end as fits. */
  showRegion() {
    const most = Math.max(this.end * SPARE, this.far);
    const after = Math.min(this.far - this.splice, (this.splice - this.first) / 2);
    const wanted = Math.min((this.splice - this.first + after) * SPARE, this.comfortableSpan() * 1.6);
    this.target.span = Math.min(Math.max(this.target.span, wanted), most);
    this.pan(Math.max(this.first - 1, this.splice + after - this.target.span / (SPARE - 0.01)));
    this.view = { ...this.target };
  }

  /** Shows the prompt and the new bars after it, or the place where they begin. */
  showFresh() {
    const [whole, most] = [(this.far - this.first) * 1.02, this.comfortableSpan() * 1.6];
    this.follow = false;
    this.target.span = Math.min(whole, most);
    this.pan(whole <= most ? this.first : this.splice - 0.3 * most);
  }

  /** Shows another region of the prompt, while the user chooses one. */
  mark(first, splice) {
    [this.first, this.splice] = [first, splice];
    this.mapIsStale = true;
    this.request();
  }

  /** The letter, number of bars, first beat and a beat in the last bar of a section; undefined where there is none. */
  sectionAt(beat) {
    const lineOf = (bar) => this.bars[Math.min(bar, this.bars.length - 1)];
    const spans = (this.sheet?.sections ?? []).map(([letter, first, count]) => ({ letter, count, start: lineOf(first - 1), stop: lineOf(first - 1 + count) - 0.01 }));
    return spans.find(({ start, stop }) => beat >= start && beat < stop);
  }

  /** Shows other bars that are to be written, while the user selects them. */
  select(start, stop) {
    this.gap = { ids: new Set(), ...this.gap, start, stop };
    this.request();
  }

  /** Finds the range of keys and the drums that occur. */
  measure() {
    let low = 128;
    let high = -1;
    const drums = new Set();
    this.numNotes = 0;
    for (const layer of this.layers) {
      this.numNotes += layer.notes.length;
      for (const note of layer.notes) {
        if (this.seenEnd(layer, note) === null) continue;
        if (layer.drums) drums.add(note.pitch);
        else if (note.pitch < low) low = note.pitch;
        if (!layer.drums && note.pitch > high) high = note.pitch;
      }
    }
    this.drums = [...drums].sort((one, other) => drumPlace(one) - drumPlace(other));
    this.drumRow = new Map(this.drums.map((key, index) => [key, this.drums.length - 1 - index]));
    this.hasKeyboard = high >= 0 || !drums.size;
    if (high < 0) [low, high] = [50, 81];
    const spare = Math.max(0, LEAST_SEMITONES - (high - low + 5));
    this.wanted = [low - 2 - Math.floor(spare / 2), high + 3 + Math.ceil(spare / 2)];
  }

  /** Moves the view so that a beat is visible, a fifth from its left edge. */
  lookAt(beat, jump) {
    const { start, span } = this.target;
    if (jump || beat < start || beat > start + span * 0.86) this.pan(beat - span * 0.2);
    if (jump || this.still.matches) this.view = { ...this.target };
  }

  /** The end of the piece, or of the new bars after it. */
  get far() {
    return Math.max(this.end, this.fresh?.stop ?? 0);
  }

  pan(start) {
    this.target.start = Math.max(0, Math.min(start, this.far - this.target.span * 0.9));
    this.request();
  }

  /** Zooms around a point of the view, from 0 (left) to 1. */
  zoom(factor, around = 0.5) {
    const { start, span } = this.target;
    const next = Math.max(4, Math.min(span * factor, Math.max(this.far * 1.02, 4)));
    this.target.span = next;
    this.zoomedAt = performance.now();
    this.pan(start + around * (span - next));
  }

  fit() {
    this.target.span = this.end * 1.02;
    this.zoomedAt = performance.now();
    this.pan(0);
  }

  setPlayhead(beat, isPlaying) {
    this.playhead = beat;
    if (isPlaying && this.follow && beat !== null) this.lookAt(beat, false);
    this.request();
  }

  request() {
    if (!this.pending) this.pending = requestAnimationFrame((now) => this.tick(now));
  }

  tick(now) {
    this.pending = 0;
    const passed = this.moving ? Math.min(100, now - this.tickedAt) : 1000 / 60;
    const share = 1 - Math.exp(-passed / EASE_MS); // the same duration at every frame rate
    this.tickedAt = now;
    this.moving = false;
    const ease = (from, to, least) => {
      if (this.still.matches || Math.abs(to - from) < least) return to;
      this.moving = true;
      return from + (to - from) * share;
    };
    const pixel = this.target.span / Math.max(1, this.canvas.clientWidth);
    this.view.start = ease(this.view.start, this.target.start, pixel / 2);
    this.view.span = ease(this.view.span, this.target.span, pixel / 2);
    if (this.wanted) {
      const least = this.numNotes > MANY_NOTES ? Infinity : 0.02;
      this.low = ease(this.low, this.wanted[0], least);
      this.high = ease(this.high, this.wanted[1], least);
      this.lane = ease(this.lane, this.wantedLane, least);
    }
    if (this.draw(now)) this.moving = true;
    this.overview.draw();
    this.onDraw();
    if (this.moving) this.request();
  }

  /** The layout of the roll, in pixels from the top and left. */
  measures() {
    const height = this.canvas.clientHeight;
    const floor = height - this.lane; // where the keyboard ends and the drums begin
    const row = (floor - this.top) / (this.high - this.low);
    const drumRow = (this.lane - 2 * LANE_EDGE) / Math.max(1, this.drums.length);
    return {
      width: this.canvas.clientWidth,
      height,
      floor,
      row,
      drumRow,
      y: (pitch) => this.top + (this.high - pitch - 1) * row,
      drumY: (key) => floor + LANE_EDGE + this.drumRow.get(key) * drumRow,
    };
  }

  /** Where the visible part of a note ends; null if the whole note is cut off. */
  seenEnd(layer, note) {
    if (layer.isNew) return note.off;
    const { gap } = this;
    if (gap?.isHidden && gap.ids.has(layer.id) && note.on >= gap.start - EDGE && note.on < gap.stop - EDGE) return null;
    if (!this.cut || this.splice <= 0) return note.off;
    return note.on >= this.splice - 0.001 ? null : Math.min(note.off, this.splice);
  }

  /** Where a beat is, in pixels from the left. */
  x(beat) {
    return this.keys + (beat - this.view.start) * this.perBeat;
  }

  /** The key at a height in pixels: {pitch, drums}; no pitch where there is none. */
  keyAt(height) {
    const { floor, row, drumRow } = this.measures();
    if (height < floor) return { pitch: Math.ceil(this.high - (height - this.top) / row) - 1, drums: false };
    return { pitch: this.drums.at(-1 - Math.floor((height - floor - LANE_EDGE) / drumRow)), drums: true };
  }

  beatAt(event) {
    return this.view.start + (event.offsetX - this.keys) / this.perBeat;
  }
}
