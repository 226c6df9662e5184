// The piano roll: draws packed notes on a canvas and an overview strip below it. It knows no audio and
// no server; player.js tells it what to show. Times are quarter notes from the start of the piece.
// player.py puts this file and player.js into one function, in this order.

const UNITS_PER_BEAT = 96; // as in player.py
const BLACK_KEYS = new Set([1, 3, 6, 8, 10]);
const RULER = 24;
const FRESH_MS = 700;
const LEAST_SEMITONES = 30;

/** Reads "a,b;c,d;" into rows; a text that only grew is read from where it ended last time. */
function rowReader(makeRow) {
  let text = "";
  let rows = [];
  return (next) => {
    if (!next.startsWith(text)) {
      text = "";
      rows = [];
    }
    if (next.length > text.length) {
      for (const item of next.slice(text.length).split(";")) {
        if (item) rows.push(makeRow(item.split(",").map(Number)));
      }
      text = next;
    }
    return rows;
  };
}

const noteReader = () =>
  rowReader(([onset, duration, pitch, velocity]) => ({
    on: onset / UNITS_PER_BEAT,
    off: (onset + duration) / UNITS_PER_BEAT,
    pitch,
    velocity,
    born: performance.now(),
  }));

/** First index whose key is not below the value, in rows sorted by key. */
function lowerBound(rows, value, key) {
  let low = 0;
  let high = rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (key(rows[middle]) < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

class Roll {
  constructor(canvas, overview, { onSeek }) {
    this.canvas = canvas;
    this.overview = overview;
    this.onSeek = onSeek;
    this.still = window.matchMedia("(prefers-reduced-motion: reduce)");
    this.layers = []; // {notes, hue, isNew}
    this.bars = [0];
    this.joint = 0;
    this.end = 16;
    this.cut = false; // hide what the prompt plays after the joint
    this.playhead = null;
    this.pen = null; // where the model is writing
    this.follow = true;
    this.view = { start: 0, span: 32 };
    this.target = { start: 0, span: 32 };
    this.low = 48;
    this.high = 84;
    this.pending = 0;
    this.readColours();
    this.listen();
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(canvas);
    this.observer.observe(overview);
    this.scheme = new MutationObserver(() => {
      this.readColours();
      this.request();
    });
    this.scheme.observe(document.body, { attributes: true, attributeFilter: ["class"] });
    this.resize();
  }

  readColours() {
    const style = getComputedStyle(this.canvas);
    const colour = (name) => style.getPropertyValue(`--roll-${name}`).trim();
    this.colours = {};
    for (const name of ["paper", "shade", "row", "beat", "bar", "text", "label", "white", "black", "edge", "head", "flash"]) {
      this.colours[name] = colour(name);
    }
    this.colours.old = [0, 1, 2, 3, 4, 5].map((index) => colour(`old-${index}`));
    this.colours.fresh = [0, 1, 2, 3, 4, 5].map((index) => colour(`new-${index}`));
    this.font = style.fontFamily;
  }

  resize() {
    const scale = window.devicePixelRatio || 1;
    for (const canvas of [this.canvas, this.overview]) {
      const width = Math.round(canvas.clientWidth * scale);
      const height = Math.round(canvas.clientHeight * scale);
      if (canvas.width !== width || canvas.height !== height) {
        canvas.width = width;
        canvas.height = height;
      }
    }
    this.keys = this.canvas.clientWidth < 560 ? 26 : 44;
    this.request();
  }

  /** Beats that fit comfortably: about 20 pixels each, never less than six bars of four. */
  comfortableSpan() {
    return Math.max(24, (this.canvas.clientWidth - this.keys) / 20);
  }

  show(scene, { reset }) {
    this.layers = scene.layers;
    this.bars = scene.bars.length ? scene.bars : [0];
    this.joint = scene.joint;
    this.end = Math.max(scene.end, 4);
    this.cut = scene.cut;
    this.pen = scene.pen;
    const range = this.pitchRange();
    this.wanted = range;
    if (reset) {
      [this.low, this.high] = range;
      this.follow = true;
      this.target.span = Math.min(this.comfortableSpan(), this.end);
      this.lookAt(scene.focus ?? 0, true);
    } else if (this.follow && this.pen !== null) {
      this.lookAt(this.pen, false);
    }
    this.request();
  }

  pitchRange() {
    let low = 128;
    let high = -1;
    for (const layer of this.layers) {
      for (const note of layer.notes) {
        if (this.cut && !layer.isNew && note.on >= this.joint) continue;
        if (note.pitch < low) low = note.pitch;
        if (note.pitch > high) high = note.pitch;
      }
    }
    if (high < 0) return [48, 84];
    low -= 2;
    high += 3;
    const spare = LEAST_SEMITONES - (high - low);
    return spare > 0 ? [low - Math.floor(spare / 2), high + Math.ceil(spare / 2)] : [low, high];
  }

  /** Brings a beat into sight: to a fifth from the left when it is not in the middle part of the view. */
  lookAt(beat, jump) {
    const { start, span } = this.target;
    if (jump || beat < start || beat > start + span * 0.86) this.pan(beat - span * 0.2);
    if (jump || this.still.matches) this.view = { ...this.target };
  }

  pan(start) {
    this.target.start = Math.max(0, Math.min(start, this.end - this.target.span * 0.9));
    this.request();
  }

  zoom(factor) {
    const middle = this.target.start + this.target.span / 2;
    const span = Math.max(4, Math.min(this.target.span * factor, this.end * 1.02));
    this.target.span = span;
    this.pan(middle - span / 2);
  }

  fit() {
    this.target.span = this.end * 1.02;
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
    let moving = false;
    const ease = (from, to) => {
      if (this.still.matches || Math.abs(to - from) < 0.02) return to;
      moving = true;
      return from + (to - from) * 0.18;
    };
    this.view.start = ease(this.view.start, this.target.start);
    this.view.span = ease(this.view.span, this.target.span);
    if (this.wanted) {
      this.low = ease(this.low, this.wanted[0]);
      this.high = ease(this.high, this.wanted[1]);
    }
    if (this.draw(now)) moving = true;
    this.drawOverview();
    if (moving) this.request();
  }

  draw(now) {
    const scale = window.devicePixelRatio || 1;
    const pen = this.canvas.getContext("2d");
    const width = this.canvas.clientWidth;
    const height = this.canvas.clientHeight;
    const colours = this.colours;
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.fillStyle = colours.paper;
    pen.fillRect(0, 0, width, height);
    if (width < 40 || height < 60) return false;

    const { start, span } = this.view;
    const perBeat = (width - this.keys) / span;
    const row = (height - RULER) / (this.high - this.low);
    const x = (beat) => this.keys + (beat - start) * perBeat;
    const y = (pitch) => RULER + (this.high - pitch - 1) * row;
    this.perBeat = perBeat;

    pen.save();
    pen.beginPath();
    pen.rect(this.keys, 0, width - this.keys, height);
    pen.clip();
    this.drawGrid(pen, x, y, row, perBeat, width, height);
    const [fresh, sounding] = this.drawNotes(pen, x, y, row, now);
    this.drawMarks(pen, x, height);
    pen.restore();
    this.drawKeys(pen, y, row, height, sounding);
    return fresh;
  }

  drawGrid(pen, x, y, row, perBeat, width, height) {
    const { colours } = this;
    if (this.joint > 0) {
      pen.fillStyle = colours.shade;
      pen.fillRect(x(0), 0, x(this.joint) - x(0), height);
    }
    pen.fillStyle = colours.row;
    for (let pitch = Math.floor(this.low); pitch < this.high; pitch += 1) {
      if (BLACK_KEYS.has(((pitch % 12) + 12) % 12)) pen.fillRect(this.keys, y(pitch), width, row);
    }
    const last = this.view.start + this.view.span;
    const first = Math.max(0, lowerBound(this.bars, this.view.start, (bar) => bar) - 1);
    const barPixels = perBeat * 4;
    const step = Math.max(1, 2 ** Math.ceil(Math.log2(44 / Math.max(barPixels, 1))));
    pen.font = `11px ${this.font}`;
    pen.textBaseline = "middle";
    for (let index = first; index < this.bars.length && this.bars[index] <= last; index += 1) {
      const bar = this.bars[index];
      if (perBeat > 13) {
        const next = Math.min(this.bars[index + 1] ?? this.end, last);
        pen.fillStyle = colours.beat;
        for (let beat = bar + 1; beat < next - 0.01; beat += 1) pen.fillRect(Math.round(x(beat)), RULER, 1, height);
      }
      if (index % step === 0 || barPixels > 10) {
        pen.fillStyle = colours.bar;
        pen.fillRect(Math.round(x(bar)), index % step ? RULER : 6, 1, height);
      }
      if (index % step === 0 && index < this.bars.length - 1) {
        pen.fillStyle = colours.text;
        pen.fillText(String(index + 1), x(bar) + 5, RULER / 2);
      }
    }
    pen.fillStyle = colours.bar;
    pen.fillRect(this.keys, RULER - 1, width, 1);
  }

  drawNotes(pen, x, y, row, now) {
    const { start, span } = this.view;
    const sounding = new Map();
    const thickness = Math.max(2, row - (row > 5 ? 1 : 0));
    let fresh = false;
    for (const layer of this.layers) {
      const palette = layer.isNew ? this.colours.fresh : this.colours.old;
      const colour = palette[layer.hue % palette.length];
      const longest = layer.longest ?? 16;
      const first = lowerBound(layer.notes, start - longest, (note) => note.on);
      for (let index = first; index < layer.notes.length; index += 1) {
        const note = layer.notes[index];
        if (note.on > start + span) break;
        const beyond = !layer.isNew && this.joint > 0 && note.on >= this.joint - 0.001;
        if (note.off < start || (beyond && this.cut)) continue;
        const off = this.cut && !layer.isNew ? Math.min(note.off, Math.max(this.joint, note.on)) : note.off;
        const left = x(note.on);
        const wide = Math.max(2.5, x(off) - left - 1);
        const top = y(note.pitch);
        const plays = this.playhead !== null && note.on <= this.playhead && this.playhead < note.off && !beyond;
        const age = layer.isNew && this.pen !== null ? now - note.born : FRESH_MS;
        pen.globalAlpha = beyond ? 0.16 : 0.38 + (0.62 * note.velocity) / 127;
        pen.fillStyle = colour;
        if (plays && this.isPlaying) {
          sounding.set(note.pitch, colour);
          pen.globalAlpha = 1;
        }
        pen.beginPath();
        pen.roundRect(left, top, wide, thickness, Math.min(3, thickness / 2, wide / 2));
        pen.fill();
        if (plays && this.isPlaying) {
          pen.globalAlpha = 0.35;
          pen.fillStyle = this.colours.flash;
          pen.fill();
        } else if (age < FRESH_MS && !this.still.matches) {
          fresh = true;
          pen.globalAlpha = 0.75 * (1 - age / FRESH_MS);
          pen.fillStyle = this.colours.flash;
          pen.fill();
        }
      }
    }
    pen.globalAlpha = 1;
    return [fresh, sounding];
  }

  drawMarks(pen, x, height) {
    const { colours } = this;
    const accent = colours.fresh[0];
    if (this.joint > 0) {
      pen.fillStyle = accent;
      pen.globalAlpha = 0.55;
      pen.fillRect(Math.round(x(this.joint)) - 1, RULER, 1.5, height);
      pen.globalAlpha = 1;
    }
    if (this.pen !== null) {
      const at = x(this.pen);
      const glow = pen.createLinearGradient(at - 60, 0, at, 0);
      glow.addColorStop(0, `${accent}00`); // the colours of new music are #rrggbb
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

  drawKeys(pen, y, row, height, sounding) {
    const { colours } = this;
    pen.fillStyle = colours.white;
    pen.fillRect(0, 0, this.keys, height);
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
    pen.fillStyle = colours.paper;
    pen.fillRect(0, 0, this.keys, RULER);
    pen.fillStyle = colours.bar;
    pen.fillRect(this.keys - 1, RULER, 1, height);
    pen.fillRect(0, RULER - 1, this.keys, 1);
  }

  drawOverview() {
    const scale = window.devicePixelRatio || 1;
    const pen = this.overview.getContext("2d");
    const width = this.overview.clientWidth;
    const height = this.overview.clientHeight;
    const { colours } = this;
    const perBeat = width / Math.max(this.end, 1);
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.fillStyle = colours.paper;
    pen.fillRect(0, 0, width, height);
    if (this.joint > 0) {
      pen.fillStyle = colours.shade;
      pen.fillRect(0, 0, this.joint * perBeat, height);
    }
    for (const layer of this.layers) {
      const palette = layer.isNew ? colours.fresh : colours.old;
      pen.fillStyle = palette[layer.hue % palette.length];
      for (const note of layer.notes) {
        const beyond = !layer.isNew && this.joint > 0 && note.on >= this.joint - 0.001;
        if (beyond && this.cut) continue;
        pen.globalAlpha = beyond ? 0.15 : 0.8;
        const top = ((this.high - note.pitch) / (this.high - this.low)) * (height - 6) + 2;
        pen.fillRect(note.on * perBeat, top, Math.max(1, (note.off - note.on) * perBeat), 1.5);
      }
    }
    pen.globalAlpha = 1;
    const left = this.view.start * perBeat;
    const wide = Math.min(this.view.span * perBeat, width - left);
    if (this.view.span < this.end) {
      pen.fillStyle = colours.paper;
      pen.globalAlpha = 0.55;
      pen.fillRect(0, 0, left, height);
      pen.fillRect(left + wide, 0, width, height);
      pen.globalAlpha = 1;
      pen.strokeStyle = colours.text;
      pen.lineWidth = 1.25;
      pen.beginPath();
      pen.roundRect(left + 0.75, 0.75, Math.max(6, wide - 1.5), height - 1.5, 4);
      pen.stroke();
    }
    if (this.playhead !== null) {
      pen.fillStyle = colours.head;
      pen.fillRect(this.playhead * perBeat - 0.75, 0, 1.5, height);
    }
  }

  beatAt(event) {
    return this.view.start + (event.offsetX - this.keys) / this.perBeat;
  }

  listen() {
    let grip = null;
    this.canvas.addEventListener("pointerdown", (event) => {
      grip = { x: event.clientX, start: this.target.start, moved: false };
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (!grip) return;
      const far = event.clientX - grip.x;
      if (Math.abs(far) > 6) grip.moved = true;
      if (!grip.moved) return;
      this.follow = false;
      this.pan(grip.start - far / this.perBeat);
      this.view.start = this.target.start;
    });
    this.canvas.addEventListener("pointerup", (event) => {
      if (grip && !grip.moved && event.offsetX > this.keys) this.onSeek(this.beatAt(event));
      grip = null;
    });
    this.canvas.addEventListener("pointercancel", () => {
      grip = null;
    });
    this.canvas.addEventListener(
      "wheel",
      (event) => {
        const across = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
        if (event.ctrlKey || event.metaKey) this.zoom(event.deltaY > 0 ? 1.15 : 0.87);
        else if (Math.abs(across) > Math.abs(event.shiftKey ? 0 : event.deltaY)) {
          this.follow = false;
          this.pan(this.target.start + across / this.perBeat);
        } else return;
        event.preventDefault();
      },
      { passive: false },
    );
    const centre = (event) => {
      const beat = (event.offsetX / this.overview.clientWidth) * this.end;
      this.follow = false;
      this.pan(beat - this.target.span / 2);
    };
    let dragging = false;
    this.overview.addEventListener("pointerdown", (event) => {
      dragging = true;
      this.overview.setPointerCapture(event.pointerId);
      centre(event);
    });
    this.overview.addEventListener("pointermove", (event) => dragging && centre(event));
    this.overview.addEventListener("pointerup", () => {
      dragging = false;
    });
  }
}
