// The roll: draws notes on a canvas, pitched ones beside a keyboard and drums in a lane below. It knows
// no audio and no server; player.js tells it what to show.

const BLACK_KEYS = new Set([1, 3, 6, 8, 10]);
const LEAST_WIDTH = 2.5; // of a note in pixels
const FRESH_MS = 700;

function clipTo(pen, left, top, width, height) {
  pen.beginPath();
  pen.rect(left, top, width, height);
  pen.clip();
}

function fillBox(pen, left, top, width, height) {
  if (Math.min(width, height) < 3) {
    pen.fillRect(left, top, width, height); // much faster, and as small looks the same
    return;
  }
  pen.beginPath();
  pen.roundRect(left, top, width, height, Math.min(3, width / 2, height / 2));
  pen.fill();
}

class Roll extends RollOverview {
  draw(now) {
    const scale = window.devicePixelRatio || 1;
    const pen = this.canvas.getContext("2d");
    const width = this.canvas.clientWidth;
    const height = this.canvas.clientHeight;
    const colours = this.colours;
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.textBaseline = "middle";
    pen.fillStyle = colours.paper;
    pen.fillRect(0, 0, width, height);
    if (width < 40 || height < 60) return false;

    const { start, span } = this.view;
    const perBeat = (width - this.keys) / span;
    const floor = height - this.lane; // where the keyboard ends and the drums begin
    const row = (floor - RULER) / (this.high - this.low);
    const drumRow = (this.lane - 2 * LANE_EDGE) / Math.max(1, this.drums.length);
    const x = (beat) => this.keys + (beat - start) * perBeat;
    const y = (pitch) => RULER + (this.high - pitch - 1) * row;
    const drumY = (key) => floor + LANE_EDGE + this.drumRow.get(key) * drumRow;
    this.perBeat = perBeat;

    pen.save();
    clipTo(pen, this.keys, 0, width, height);
    if (this.joint > 0) {
      pen.fillStyle = colours.shade;
      pen.fillRect(x(0), 0, x(this.joint) - x(0), height);
    }
    this.drawRows(pen, y, row, floor, drumRow, width);
    this.drawBars(pen, x, perBeat, width, height);
    pen.save();
    clipTo(pen, 0, RULER, width, floor - RULER);
    const thickness = Math.max(2, row - (row > 5 ? 1 : 0));
    const keys = this.drawNotes(pen, false, x, now, (note, left, right) => {
      fillBox(pen, left, y(note.pitch), Math.max(LEAST_WIDTH, right - left - 1), thickness);
    });
    pen.restore();
    const wide = Math.max(LEAST_WIDTH, Math.min(perBeat / 6, 9));
    const drums = this.drawNotes(pen, true, x, now, (note, left) => {
      const tall = Math.max(1.5, Math.min(drumRow - 1, 22) * (0.5 + note.velocity / 254));
      fillBox(pen, left, drumY(note.pitch) + (drumRow - tall) / 2, wide, tall);
    });
    this.drawMarks(pen, x, height);
    pen.restore();
    if (floor > RULER + 1) this.drawKeys(pen, y, row, floor, keys.sounding);
    if (this.lane > 1) this.drawDrumNames(pen, drumY, drumRow, floor, width, height, drums.sounding);
    pen.fillStyle = colours.paper;
    pen.fillRect(0, 0, this.keys, RULER);
    pen.fillStyle = colours.bar;
    pen.fillRect(this.keys - 1, RULER, 1, height);
    pen.fillRect(0, RULER - 1, width, 1);
    return keys.fresh || drums.fresh;
  }

  drawRows(pen, y, row, floor, drumRow, width) {
    pen.fillStyle = this.colours.row;
    for (let pitch = Math.floor(this.low); pitch < this.high; pitch += 1) {
      const tall = Math.min(row, floor - y(pitch));
      if (tall > 0 && BLACK_KEYS.has(((pitch % 12) + 12) % 12)) pen.fillRect(this.keys, y(pitch), width, tall);
    }
    for (let index = 1; index < this.drums.length; index += 2) {
      pen.fillRect(this.keys, floor + LANE_EDGE + index * drumRow, width, drumRow);
    }
  }

  drawBars(pen, x, perBeat, width, height) {
    const { bars, colours } = this;
    const last = this.view.start + this.view.span;
    const first = Math.max(0, lowerBound(bars, this.view.start, (bar) => bar) - 1);
    const barPixels = perBeat * ((bars.at(-1) - bars[0]) / (bars.length - 1) || 4);
    const step = Math.max(1, 2 ** Math.ceil(Math.log2(44 / Math.max(barPixels, 0.01))));
    pen.font = `11px ${this.font}`;
    for (let index = first; index < bars.length && bars[index] <= last; index += 1) {
      const bar = bars[index];
      if (this.beats && perBeat > 13) {
        const next = Math.min(bars[index + 1] ?? this.end, last);
        pen.fillStyle = colours.beat;
        for (let beat = bar + 1; beat < next - 0.01; beat += 1) pen.fillRect(Math.round(x(beat)), RULER, 1, height);
      }
      if (index % step === 0 || barPixels > 10) {
        pen.fillStyle = colours.bar;
        pen.fillRect(Math.round(x(bar)), index % step ? RULER : 6, 1, height);
      }
      if (index % step === 0 && index < bars.length - 1) {
        pen.fillStyle = colours.text;
        pen.fillText(String(index + 1), x(bar) + 5, RULER / 2);
      }
    }
  }

  /** Draws drums or the other notes in sight, each with `fill`; says which sound and if any is fresh. */
  drawNotes(pen, isDrums, x, now, fill) {
    const { start, span } = this.view;
    const sounding = new Map();
    let fresh = false;
    for (const layer of this.layers) {
      if (layer.drums !== isDrums) continue;
      const colour = this.colours[colourName(layer, this.isSolo)];
      const [begins, ends] = [0, 1].map(() => new Float64Array(128).fill(-Infinity)); // of each key's last note
      const first = lowerBound(layer.notes, start - layer.longest, (note) => note.on);
      pen.fillStyle = colour;
      for (let index = first; index < layer.notes.length; index += 1) {
        const note = layer.notes[index];
        if (note.on > start + span) break;
        const beyond = !layer.isNew && this.joint > 0 && note.on >= this.joint - 0.001;
        if (note.off < start || (beyond && this.cut)) continue;
        const off = this.cut && !layer.isNew ? Math.min(note.off, Math.max(this.joint, note.on)) : note.off;
        const plays = this.isPlaying && note.on <= this.playhead && this.playhead < note.off && !beyond;
        const age = layer.isNew && this.pen !== null && !this.still.matches ? now - note.born : FRESH_MS;
        const left = x(note.on);
        const right = Math.max(x(off), left + LEAST_WIDTH);
        const isCovered = left < begins[note.pitch] + 1 && right < ends[note.pitch] + 1;
        if (isCovered && !plays && age >= FRESH_MS) continue; // thousands of notes, not one to be seen
        begins[note.pitch] = left;
        ends[note.pitch] = right;
        pen.globalAlpha = plays ? 1 : beyond ? 0.16 : 0.45 + (0.55 * note.velocity) / 127;
        fill(note, left, right);
        if (plays) sounding.set(note.pitch, colour);
        if (age < FRESH_MS) fresh = true;
        const light = plays ? 0.35 : 0.75 * (1 - age / FRESH_MS);
        if (light <= 0) continue;
        pen.globalAlpha = light;
        pen.fillStyle = this.colours.flash;
        fill(note, left, right);
        pen.fillStyle = colour;
      }
    }
    pen.globalAlpha = 1;
    return { fresh, sounding };
  }

  drawMarks(pen, x, height) {
    const { colours } = this;
    const { accent } = colours;
    if (this.joint > 0) {
      pen.fillStyle = accent;
      pen.globalAlpha = 0.55;
      pen.fillRect(Math.round(x(this.joint)) - 1, RULER, 1.5, height);
      pen.globalAlpha = 1;
    }
    if (this.pen !== null) {
      const at = x(this.pen);
      const glow = pen.createLinearGradient(at - 60, 0, at, 0);
      glow.addColorStop(0, `${accent}00`); // it is #rrggbb
      glow.addColorStop(1, accent);
      pen.globalAlpha = 0.16;
      pen.fillStyle = glow;
      pen.fillRect(at - 60, RULER, 60, height);
      pen.globalAlpha = 0.9;
      pen.fillStyle = accent;
      pen.fillRect(at, RULER, 2, height);
      pen.globalAlpha = 1;
    }
    if (this.playhead !== null) {
      const at = x(this.playhead);
      pen.fillStyle = colours.head;
      pen.fillRect(at - 0.75, 6, 1.5, height);
      pen.beginPath();
      pen.roundRect(at - 5, 4, 10, 12, 3);
      pen.fill();
    }
  }

  drawKeys(pen, y, row, floor, sounding) {
    const { colours } = this;
    pen.save();
    clipTo(pen, 0, 0, this.keys, floor);
    pen.fillStyle = colours.white;
    pen.fillRect(0, 0, this.keys, floor);
    pen.font = `${this.keys < 40 ? 9 : 10}px ${this.font}`;
    for (let pitch = Math.floor(this.low) - 1; pitch <= this.high; pitch += 1) {
      const tone = ((pitch % 12) + 12) % 12;
      const top = y(pitch);
      const lit = sounding.get(pitch);
      if (BLACK_KEYS.has(tone)) {
        pen.fillStyle = lit ?? colours.black;
        pen.fillRect(0, top, this.keys * (this.keys < 40 ? 0.4 : 0.58), row);
        continue;
      }
      if (lit) {
        pen.fillStyle = lit;
        pen.fillRect(0, top - (tone === 4 || tone === 11 ? 0 : row * 0.4), this.keys - 1, row * 1.4);
      }
      if (tone === 0 || tone === 5) {
        pen.fillStyle = colours.edge;
        pen.fillRect(0, top + row - 0.5, this.keys, 1);
      }
      if (tone === 0 && row > 2.5) {
        pen.fillStyle = colours.label;
        pen.textAlign = "right";
        pen.fillText(`C${pitch / 12 - 1}`, this.keys - 3, top + row / 2);
        pen.textAlign = "left";
      }
    }
    pen.restore();
  }

  drawDrumNames(pen, drumY, row, floor, width, height, sounding) {
    const { colours, keys } = this;
    pen.fillStyle = colours.paper;
    pen.fillRect(0, floor, keys, height);
    for (const [key, colour] of sounding) {
      pen.fillStyle = colour;
      pen.fillRect(0, drumY(key), keys - 1, row);
    }
    pen.font = `${Math.max(9, Math.min(row - 1, 11))}px ${this.font}`;
    pen.textAlign = "right";
    const isFitting = (name) => pen.measureText(name).width <= keys - 7;
    const nameOf = (key) => DRUMS.get(key) ?? `Key ${key}`;
    const named = row >= 9.5 ? this.drums.filter((key) => isFitting(nameOf(key))) : [];
    for (const key of named) {
      pen.fillStyle = sounding.has(key) ? colours.paper : colours.text;
      pen.fillText(nameOf(key), keys - 5, drumY(key) + row / 2 + 0.5);
    }
    if (!named.length && isFitting("Drums")) {
      pen.fillStyle = colours.text;
      pen.fillText("Drums", keys - 5, floor + this.lane / 2);
    }
    pen.textAlign = "left";
    if (!this.hasKeyboard) return;
    pen.fillStyle = colours.bar;
    pen.fillRect(0, Math.round(floor), width, 1);
  }
}
