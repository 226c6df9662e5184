// The strip below the roll: the whole piece, and the part of it that is in view.

import { onDrag } from "../dom.js";
import { colourName } from "./notes.js";
import { fill, fitCanvas, penOf, pixelRatio } from "./pen.js";
import { QUIET } from "./tiles.js";
import { LANE_EDGE } from "./view.js";

export class Overview {
  map = document.createElement("canvas"); // all notes

  constructor(canvas, roll) {
    Object.assign(this, { canvas, roll });
    const resize = () => {
      fitCanvas(canvas);
      roll.mapIsStale = true;
      roll.request();
    };
    new ResizeObserver(resize).observe(canvas);
    resize();
    onDrag(canvas, {
      start: (event) => {
        roll.follow = false;
        roll.pan((event.offsetX / canvas.clientWidth) * roll.end - roll.target.span / 2);
      },
    });
  }

  /** Draws all notes on the map, which changes with the notes, not with the view. */
  drawMap() {
    const { roll } = this;
    const { colours } = roll;
    const [low, high] = roll.wanted;
    [this.map.width, this.map.height] = [this.canvas.width, this.canvas.height];
    const pen = penOf(this.map);
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const lane = roll.drums.length && (roll.hasKeyboard ? height * 0.32 : height);
    const floor = height - lane;
    const drumRow = (lane - 2 * LANE_EDGE) / Math.max(1, roll.drums.length);
    const perBeat = width / Math.max(roll.end, 1);
    fill(pen, colours.paper, 0, 0, width, height);
    const [start, stop] = roll.gap ? [roll.gap.start, roll.gap.stop] : [roll.first, roll.splice];
    if (stop > start) fill(pen, roll.gap ? colours.accent : colours.shade, start * perBeat, 0, (stop - start) * perBeat, height, roll.gap ? 0.15 : 1);
    if (lane && floor > 0) fill(pen, colours.bar, 0, Math.round(floor), width, 1);
    for (const layer of roll.layers) {
      pen.fillStyle = colours[colourName(layer, roll.isSolo)];
      for (const note of layer.notes) {
        const beyond = !layer.isNew && !roll.gap && roll.splice > 0 && note.on >= roll.splice - 0.001;
        if (roll.seenEnd(layer, note) === null) continue;
        pen.globalAlpha = (beyond ? 0.15 : 0.8) * (layer.isQuiet ? QUIET : 1);
        const left = note.on * perBeat;
        if (layer.drums) {
          const tall = Math.max(1.5, Math.min(drumRow - 0.5, 4));
          const middle = floor + LANE_EDGE + (roll.drumRow.get(note.pitch) + 0.5) * drumRow;
          pen.fillRect(left, middle - tall / 2, 1.5, tall);
        } else {
          const top = ((high - note.pitch) / (high - low)) * (floor - 6) + 2;
          pen.fillRect(left, top, Math.max(1, (note.off - note.on) * perBeat), 1.5);
        }
      }
    }
    roll.mapIsStale = false;
  }

  draw() {
    const { roll } = this;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const { colours } = roll;
    if (!roll.wanted || !width || !height || !this.canvas.width) return;
    if (roll.mapIsStale) this.drawMap();
    const pen = penOf(this.canvas);
    pen.drawImage(this.map, 0, 0, this.map.width / pixelRatio(), this.map.height / pixelRatio());
    const perBeat = width / Math.max(roll.end, 1);
    const left = roll.view.start * perBeat;
    const wide = Math.min(roll.view.span * perBeat, width - left);
    if (roll.view.span < roll.end) {
      fill(pen, colours.paper, 0, 0, left, height, 0.55);
      fill(pen, colours.paper, left + wide, 0, width, height, 0.55);
      pen.strokeStyle = colours.text;
      pen.lineWidth = 1.25;
      pen.beginPath();
      pen.roundRect(left + 0.75, 0.75, Math.max(6, wide - 1.5), height - 1.5, 4);
      pen.stroke();
    }
    if (roll.playhead !== null) fill(pen, colours.head, roll.playhead * perBeat - 0.75, 0, 1.5, height);
  }
}
