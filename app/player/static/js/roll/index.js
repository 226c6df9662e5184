// The piano roll on its canvas. It is independent of sound and server; player.js passes it the scene to show.

import { Gestures } from "./gestures.js";
import { colourName, lookOf, lowerBound } from "./notes.js";
import { Overview } from "./overview.js";
import { clipTo, fill, fillNote, penOf } from "./pen.js";
import { drawBars, drawDrumNames, drawKeys, drawRows, drawRuler } from "./sides.js";
import { Tiles } from "./tiles.js";
import { BAND, RollView } from "./view.js";

const FRESH_MS = 700;
const VEIL = { before: 0.5, after: 0.8 }; // opacity over parts that the model does not read, and parts that will be cut off

export class Roll extends RollView {
  constructor(canvas, overview, calls) {
    super(canvas, calls);
    this.tiles = new Tiles(this);
    this.overview = new Overview(overview, this);
    this.gestures = new Gestures(this);
  }

  /** Draws the view; returns true while an animation is running. */
  draw(now) {
    const pen = penOf(this.canvas);
    const place = this.measures();
    const { width, height, floor } = place;
    const { colours } = this;
    this.perBeat = (width - this.keys) / this.view.span;
    pen.textBaseline = "middle";
    fill(pen, colours.paper, 0, 0, width, height);
    if (width < 40 || height < 80 || this.canvas.height < 80) return false;

    pen.save();
    clipTo(pen, this.keys, this.top, width, height);
    if (this.splice > 0 && !this.gap) fill(pen, colours.shade, this.x(this.first), 0, this.x(this.splice) - this.x(this.first), height);
    drawRows(pen, this, place);
    drawBars(pen, this, place);
    this.tiles.draw(pen, now);
    const { keys, drums, fresh } = this.drawLights(pen, now);
    if (this.gap) this.drawGap(pen, height);
    else if (!this.cut && this.splice > 0) this.drawVeils(pen, place);
    if (this.fresh) this.drawFresh(pen, height);
    this.drawMarks(pen, height);
    pen.restore();
    if (floor > this.top + 1) drawKeys(pen, this, place, keys);
    if (this.lane > 1) drawDrumNames(pen, this, place, drums);
    drawRuler(pen, this, place);
    this.drawPlayhead(pen, height);
    this.onOverlay?.(pen);
    return fresh;
  }

  /** Draws the notes that sound now and those just generated, the only ones drawn in every frame. */
  drawLights(pen, now) {
    const [keys, drums] = [new Map(), new Map()];
    let fresh = false;
    for (const layer of this.layers) {
      const place = this.tiles.placer(layer, (beat) => this.x(beat));
      const colour = this.colours[colourName(layer, this.isSolo)];
      const light = (note, strength, plays) => {
        const off = this.seenEnd(layer, note);
        if (off === null) return;
        const box = place(note, off);
        if (plays) {
          pen.globalAlpha = 1;
          pen.fillStyle = colour;
          fillNote(pen, lookOf(layer.hue), ...box);
          (layer.drums ? drums : keys).set(note.pitch, colour);
        }
        pen.globalAlpha = strength;
        pen.fillStyle = this.colours.flash;
        fillNote(pen, 0, ...box);
      };
      if (this.isPlaying && !layer.isQuiet) {
        const first = lowerBound(layer.notes, this.playhead - layer.longest, (note) => note.on);
        for (let index = first; index < layer.notes.length && layer.notes[index].on <= this.playhead; index += 1) {
          if (this.playhead < layer.notes[index].off) light(layer.notes[index], 0.35, true);
        }
      }
      if (!layer.isNew || this.pen === null || this.still.matches) continue;
      for (let index = layer.notes.length - 1; index >= 0 && now - layer.notes[index].born < FRESH_MS; index -= 1) {
        fresh = true;
        light(layer.notes[index], 0.75 * (1 - Math.max(0, now - layer.notes[index].born) / FRESH_MS), false);
      }
    }
    pen.globalAlpha = 1;
    return { keys, drums, fresh };
  }

  /** Fades everything outside the region of the prompt. */
  drawVeils(pen, { width, height }) {
    const { paper } = this.colours;
    const splice = Math.max(this.keys, this.x(this.splice));
    if (this.first > 0) fill(pen, paper, this.keys, this.top, this.x(this.first) - this.keys, height, VEIL.before);
    fill(pen, paper, splice, this.top, Math.max(0, width - splice), height, VEIL.after);
  }

  /** Marks new bars that are not written yet. */
  drawFresh(pen, height) {
    const { accent } = this.colours;
    const [left, right] = [this.x(this.fresh.start), this.x(this.fresh.stop)];
    fill(pen, accent, left, this.top, right - left, height, 0.06);
    fill(pen, accent, Math.round(right) - 1, this.top, 1, height, 0.4);
  }

  /** Marks the bars that are written. */
  drawGap(pen, height) {
    const { accent } = this.colours;
    const [left, right] = [this.x(this.gap.start), this.x(this.gap.stop)];
    fill(pen, accent, left, this.top, right - left, height, this.gap.isHidden ? 0.05 : 0.11);
    for (const edge of [left, right]) fill(pen, accent, Math.round(edge) - 1, this.top, 1.5, height, 0.75);
  }

  /** Draws the splice, and the place where the model is generating. */
  drawMarks(pen, height) {
    const { accent } = this.colours;
    if (this.splice > 0 && !this.gap) fill(pen, accent, Math.round(this.x(this.splice)) - 1, this.top, 1.5, height, 0.55);
    if (this.pen === null) return;
    const at = this.x(this.pen);
    const glow = pen.createLinearGradient(at - 60, 0, at, 0);
    glow.addColorStop(0, `${accent}00`); // accent is #rrggbb
    glow.addColorStop(1, accent);
    fill(pen, glow, at - 60, this.top, 60, height, 0.16);
    fill(pen, accent, at, this.top, 2, height, 0.9);
  }

  /** Draws the playhead; its knob is below the bar numbers. */
  drawPlayhead(pen, height) {
    if (this.playhead === null) return;
    const at = this.x(this.playhead);
    if (at < this.keys - 1) return;
    fill(pen, this.colours.head, at - 0.75, BAND + 2, 1.5, height);
    pen.fill(new Path2D(`M ${at - 5.5} ${BAND + 1} h 11 v 6 l -5.5 7 l -5.5 -7 z`));
  }
}
