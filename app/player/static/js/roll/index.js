// The piano roll on its canvas. It knows neither sound nor server; player.js tells it what to show.

import { pixelRatio } from "../dom.js";
import { Gestures } from "./gestures.js";
import { colourName, lookOf, lowerBound } from "./notes.js";
import { Overview } from "./overview.js";
import { drawBars, drawDrumNames, drawKeys, drawRows, drawRuler } from "./sides.js";
import { Tiles, clipTo, fillNote } from "./tiles.js";
import { BAND, RULER, RollView } from "./view.js";

const FRESH_MS = 700;
const VEIL = { before: 0.5, after: 0.8 }; // over what the model does not see, and what will be cut off

export class Roll extends RollView {
  constructor(canvas, overview, calls) {
    super(canvas, calls);
    this.tiles = new Tiles(this);
    this.overview = new Overview(overview, this);
    this.gestures = new Gestures(this);
  }

  /** Draws the view; returns true while something moves by itself. */
  draw(now) {
    const scale = pixelRatio();
    const pen = this.canvas.getContext("2d");
    const place = this.measures();
    const { width, height, floor } = place;
    const { colours } = this;
    this.perBeat = (width - this.keys) / this.view.span;
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.textBaseline = "middle";
    pen.fillStyle = colours.paper;
    pen.fillRect(0, 0, width, height);
    if (width < 40 || height < 80 || this.canvas.height < 80) return false;

    pen.save();
    clipTo(pen, this.keys, RULER, width, height);
    if (this.joint > 0) {
      pen.fillStyle = colours.shade;
      pen.fillRect(this.x(this.first), 0, this.x(this.joint) - this.x(this.first), height);
    }
    drawRows(pen, this, place);
    drawBars(pen, this, place);
    this.tiles.draw(pen, now);
    const { keys, drums, fresh } = this.drawLights(pen, now);
    if (!this.cut && this.joint > 0) this.drawVeils(pen, place);
    this.drawMarks(pen, height);
    pen.restore();
    if (floor > RULER + 1) drawKeys(pen, this, place, keys);
    if (this.lane > 1) drawDrumNames(pen, this, place, drums);
    drawRuler(pen, this, place);
    this.drawPlayhead(pen, height);
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

  /** Fades what is outside the region of the prompt. */
  drawVeils(pen, { width, height }) {
    pen.fillStyle = this.colours.paper;
    pen.globalAlpha = VEIL.before;
    if (this.first > 0) pen.fillRect(this.keys, RULER, this.x(this.first) - this.keys, height);
    pen.globalAlpha = VEIL.after;
    const joint = Math.max(this.keys, this.x(this.joint));
    pen.fillRect(joint, RULER, Math.max(0, width - joint), height);
    pen.globalAlpha = 1;
  }

  /** The joint, and where the model is generating. */
  drawMarks(pen, height) {
    const { accent } = this.colours;
    if (this.joint > 0) {
      pen.fillStyle = accent;
      pen.globalAlpha = 0.55;
      pen.fillRect(Math.round(this.x(this.joint)) - 1, RULER, 1.5, height);
    }
    if (this.pen !== null) {
      const at = this.x(this.pen);
      const glow = pen.createLinearGradient(at - 60, 0, at, 0);
      glow.addColorStop(0, `${accent}00`); // it is #rrggbb
      glow.addColorStop(1, accent);
      pen.globalAlpha = 0.16;
      pen.fillStyle = glow;
      pen.fillRect(at - 60, RULER, 60, height);
      pen.globalAlpha = 0.9;
      pen.fillStyle = accent;
      pen.fillRect(at, RULER, 2, height);
    }
    pen.globalAlpha = 1;
  }

  /** Draws the playhead; its knob is below the bar numbers. */
  drawPlayhead(pen, height) {
    if (this.playhead === null) return;
    const at = this.x(this.playhead);
    if (at < this.keys - 1) return;
    pen.fillStyle = this.colours.head;
    pen.fillRect(at - 0.75, BAND + 2, 1.5, height);
    pen.beginPath();
    pen.moveTo(at - 5.5, BAND + 1);
    pen.lineTo(at + 5.5, BAND + 1);
    pen.lineTo(at + 5.5, BAND + 7);
    pen.lineTo(at, BAND + 14);
    pen.lineTo(at - 5.5, BAND + 7);
    pen.closePath();
    pen.fill();
  }
}
