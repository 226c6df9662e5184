// Tiles: pictures of the notes, side by side along the piece. Each is drawn once and then only moved, so
// that the cost of a frame hardly depends on the number of notes.

import { colourName, lookOf, lowerBound } from "./notes.js";
import { clipTo, fillNote, penOf, pixelRatio } from "./pen.js";

const TILE = 512; // width of a picture in device pixels
const SPARE_TILES = 8; // number kept outside the view
const LEAST_WIDTH = 2.5; // of a note in pixels
const ZOOM_REST = 160; // milliseconds after zooming before notes are drawn at their new size
export const QUIET = 0.2; // opacity of muted tracks

const loudness = (velocity) => 0.45 + (0.55 * velocity) / 127;

export class Tiles {
  tiles = new Map(); // canvases by the numbers of the pictures
  drawn = { key: "", perBeat: 0, layers: [] }; // the state that they were drawn from

  constructor(roll) {
    this.roll = roll;
  }

  /** Drops outdated pictures: all of them, or those from the first added note on. */
  refresh(now, perBeat) {
    const { roll } = this;
    const wanted = (roll.canvas.clientWidth - roll.keys) / roll.target.span;
    const ratio = this.drawn.perBeat / wanted;
    const isZooming = now - (roll.zoomedAt ?? -Infinity) < ZOOM_REST || Math.abs(perBeat / wanted - 1) > 0.01;
    const holds = isZooming && ratio > 0.4 && ratio < 2.5;
    if (isZooming) roll.moving = true;
    const scale = holds ? this.drawn.perBeat : wanted;
    const key = [scale, roll.low, roll.high, roll.lane, roll.canvas.width, roll.canvas.height, roll.top, roll.isSolo, roll.drums].join();
    const before = this.drawn.layers;
    const isSame = (layer, old) =>
      old && layer.notes === old.notes && layer.isQuiet === old.isQuiet && layer.hue === old.hue && layer.notes.length >= old.count;
    let from = Infinity;
    const isOld = roll.isStale || key !== this.drawn.key || before.some((old, index) => !isSame(roll.layers[index] ?? {}, old));
    if (isOld) from = -Infinity;
    roll.layers.forEach((layer, index) => {
      const count = before[index]?.count ?? 0;
      if (layer.notes.length > count) from = Math.min(from, layer.notes[count].on);
    });
    if (from === -Infinity) this.tiles.clear();
    else if (from < Infinity) {
      const first = Math.floor((from * scale - 12) / this.tileWidth());
      for (const number of this.tiles.keys()) if (number >= first) this.tiles.delete(number);
    }
    const layers = roll.layers.map((layer) => ({ ...layer, count: layer.notes.length }));
    this.drawn = { key, perBeat: scale, layers };
    roll.isStale = false;
  }

  tileWidth() {
    return TILE / pixelRatio();
  }

  /** Draws the pictures in view; while zooming they are stretched. */
  draw(pen, now) {
    const { roll } = this;
    this.refresh(now, roll.perBeat);
    const scale = pixelRatio();
    const stretch = roll.perBeat / this.drawn.perBeat;
    const wide = this.tileWidth() * stretch;
    const offset = roll.view.start * roll.perBeat;
    const width = roll.canvas.clientWidth - roll.keys;
    const first = Math.floor(offset / wide);
    const last = Math.floor((offset + width) / wide);
    const isWhole = Math.abs(stretch - 1) < 1e-6;
    pen.save();
    pen.setTransform(1, 0, 0, 1, 0, 0);
    let made = 0;
    for (let number = Math.max(0, first); number <= last; number += 1) {
      if (!this.tiles.has(number)) made += 1;
      const tile = this.tile(number);
      const left = (roll.keys + number * wide - offset) * scale;
      if (isWhole) pen.drawImage(tile, Math.round(left), 0);
      else pen.drawImage(tile, left, 0, wide * scale, tile.height);
    }
    pen.restore();
    if (!made && isWhole) this.drawAhead(first, last);
    if (this.tiles.size > last - first + 1 + SPARE_TILES) {
      const middle = (first + last) / 2;
      const far = [...this.tiles.keys()].sort((one, other) => Math.abs(other - middle) - Math.abs(one - middle));
      for (const number of far.slice(0, this.tiles.size - (last - first + 1) - SPARE_TILES)) this.tiles.delete(number);
    }
  }

  /** Draws one picture beside the view in advance. */
  drawAhead(first, last) {
    const { roll } = this;
    const end = (roll.end * this.drawn.perBeat) / this.tileWidth();
    const next = [last + 1, first - 1].find((number) => number >= 0 && number < end && !this.tiles.has(number));
    if (next === undefined) return;
    this.tile(next);
  }

  tile(number) {
    const { roll } = this;
    const known = this.tiles.get(number);
    if (known) return known;
    const tile = document.createElement("canvas");
    [tile.width, tile.height] = [TILE, roll.canvas.height];
    const pen = penOf(tile);
    pen.translate(-number * this.tileWidth(), 0);
    const { perBeat } = this.drawn;
    const begin = (number * this.tileWidth() - 12) / perBeat;
    const end = ((number + 1) * this.tileWidth()) / perBeat;
    const quietFirst = [...roll.layers].sort((one, other) => Boolean(other.isQuiet) - Boolean(one.isQuiet));
    for (const layer of quietFirst) this.drawLayer(pen, layer, begin, end, (beat) => beat * perBeat);
    this.tiles.set(number, tile);
    return tile;
  }

  /** Draws a layer's notes between two beats. */
  drawLayer(pen, layer, begin, end, x) {
    const { roll } = this;
    const place = this.placer(layer, x);
    const quiet = layer.isQuiet ? QUIET : 1;
    const look = lookOf(layer.hue);
    const [begins, ends] = [0, 1].map(() => new Float64Array(128).fill(-Infinity)); // of the last note of each key
    pen.save();
    if (!layer.drums) {
      const { floor } = roll.measures();
      clipTo(pen, x(begin), roll.top, x(end) - x(begin) + 12, floor - roll.top);
    }
    pen.fillStyle = roll.colours[colourName(layer, roll.isSolo)];
    for (let index = lowerBound(layer.notes, begin - layer.longest, (note) => note.on); index < layer.notes.length; index += 1) {
      const note = layer.notes[index];
      if (note.on > end) break;
      const off = roll.seenEnd(layer, note);
      if (off === null || off < begin) continue;
      const [left, top, width, height] = place(note, off);
      const isCovered = left < begins[note.pitch] + 1 && left + width < ends[note.pitch] + 1;
      if (isCovered) continue; // by an earlier note of the same key
      begins[note.pitch] = left;
      ends[note.pitch] = left + width;
      pen.globalAlpha = quiet * loudness(note.velocity);
      fillNote(pen, look, left, top, width, height);
    }
    pen.restore();
  }

  /** The box of a layer's note on the roll: left, top, width, height. */
  placer(layer, x) {
    const { roll } = this;
    const { row, drumRow, y, drumY } = roll.measures();
    if (layer.drums) {
      const wide = Math.max(LEAST_WIDTH, Math.min(this.drawn.perBeat / 6, 9));
      return (note) => {
        const tall = Math.max(1.5, Math.min(drumRow - 1, 22) * (0.5 + note.velocity / 254));
        return [x(note.on), drumY(note.pitch) + (drumRow - tall) / 2, wide, tall];
      };
    }
    const thickness = Math.max(2, row - (row > 5 ? 1 : 0));
    return (note, off) => {
      const left = x(note.on);
      return [left, y(note.pitch), Math.max(LEAST_WIDTH, x(off) - left - 1), thickness];
    };
  }
}
