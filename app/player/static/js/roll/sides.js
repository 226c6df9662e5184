// What stands beside the notes: the keyboard, the names of drums, bar lines and the ruler above.

const BLACK_KEYS = new Set([1, 3, 6, 8, 10]);

class RollSides extends RollTiles {
  drawRows(pen, { y, row, floor, drumRow, width }) {
    pen.fillStyle = this.colours.row;
    for (let pitch = Math.floor(this.low); pitch < this.high; pitch += 1) {
      const tall = Math.min(row, floor - y(pitch));
      if (tall > 0 && BLACK_KEYS.has(((pitch % 12) + 12) % 12)) pen.fillRect(this.keys, y(pitch), width, tall);
    }
    for (let index = 1; index < this.drums.length; index += 2) {
      pen.fillRect(this.keys, floor + LANE_EDGE + index * drumRow, width, drumRow);
    }
  }

  /** How many bars one number stands for, and how wide a bar is. */
  barSteps() {
    const { bars } = this;
    const wide = this.perBeat * ((bars.at(-1) - bars[0]) / (bars.length - 1) || 4);
    return { wide, step: Math.max(1, 2 ** Math.ceil(Math.log2(44 / Math.max(wide, 0.01)))) };
  }

  /** Calls with the number and place of each bar line in sight. */
  eachBar(call) {
    const last = this.view.start + this.view.span;
    const first = Math.max(0, lowerBound(this.bars, this.view.start, (bar) => bar) - 1);
    for (let index = first; index < this.bars.length && this.bars[index] <= last; index += 1) call(index, this.bars[index]);
  }

  drawBars(pen, { height }) {
    const { bars, colours } = this;
    const last = this.view.start + this.view.span;
    const { wide, step } = this.barSteps();
    this.eachBar((index, bar) => {
      if (this.beats && this.perBeat > 13) {
        const next = Math.min(bars[index + 1] ?? this.end, last);
        pen.fillStyle = colours.beat;
        for (let beat = bar + 1; beat < next - 0.01; beat += 1) pen.fillRect(Math.round(this.x(beat)), RULER, 1, height);
      }
      if (index % step && wide <= 10) return;
      pen.fillStyle = colours.bar;
      pen.fillRect(Math.round(this.x(bar)), RULER, 1, height);
    });
  }

  /** Bar numbers, and the region of the prompt below them. */
  drawRuler(pen, { width }) {
    const { bars, colours } = this;
    const { step } = this.barSteps();
    pen.fillStyle = colours.paper;
    pen.fillRect(0, 0, width, RULER);
    pen.save();
    clipTo(pen, this.keys, 0, width, RULER);
    if (this.joint > 0) {
      pen.fillStyle = colours.shade;
      pen.fillRect(this.x(this.first), BAND, this.x(this.joint) - this.x(this.first), RULER - BAND);
    }
    pen.font = `11px ${this.font}`;
    this.eachBar((index, bar) => {
      if (index % step) return;
      pen.fillStyle = colours.bar;
      pen.fillRect(Math.round(this.x(bar)), 6, 1, RULER - 6);
      if (index === bars.length - 1) return;
      pen.fillStyle = colours.text;
      pen.fillText(String(index + 1), this.x(bar) + 5, 11);
    });
    pen.restore();
    pen.fillStyle = colours.bar;
    pen.fillRect(this.keys - 1, RULER, 1, this.canvas.clientHeight);
    pen.fillRect(0, RULER - 1, width, 1);
  }

  drawKeys(pen, { y, row, floor }, sounding) {
    const { colours } = this;
    pen.save();
    clipTo(pen, 0, RULER, this.keys, floor - RULER);
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

  drawDrumNames(pen, { drumY, drumRow, floor, width, height }, sounding) {
    const { colours, keys } = this;
    pen.fillStyle = colours.paper;
    pen.fillRect(0, floor, keys, height);
    for (const [key, colour] of sounding) {
      pen.fillStyle = colour;
      pen.fillRect(0, drumY(key), keys - 1, drumRow);
    }
    pen.font = `${Math.max(9, Math.min(drumRow - 1, 11))}px ${this.font}`;
    pen.textAlign = "right";
    const isFitting = (name) => pen.measureText(name).width <= keys - 7;
    const nameOf = (key) => DRUMS.get(key) ?? `Key ${key}`;
    const named = drumRow >= 9.5 ? this.drums.filter((key) => isFitting(nameOf(key))) : [];
    for (const key of named) {
      pen.fillStyle = sounding.has(key) ? colours.paper : colours.text;
      pen.fillText(nameOf(key), keys - 5, drumY(key) + drumRow / 2 + 0.5);
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
