// The roll: draws packed notes on a canvas and an overview strip below it, pitched notes beside a
// keyboard and drums in a lane below. It knows no audio and no server; player.js tells it what to show.
// Times are quarter notes from the start of the piece.
// player.py puts this file and player.js into one function, in this order.

const UNITS_PER_BEAT = 96; // as in player.py
const BLACK_KEYS = new Set([1, 3, 6, 8, 10]);
const RULER = 24;
const LANE_EDGE = 2; // pixels above the drums and below them
const LEAST_WIDTH = 2.5; // of a note in pixels
const FRESH_MS = 700;
const LEAST_SEMITONES = 30;
const NUM_HUES = 6; // as in player.css
const DRUM_BEATS = 0.25; // how long a drum lights up: its notes have no length
// Drums of General MIDI, from the bottom of their lane to its top; keys without a name come above.
const DRUMS = new Map(
  `35 Bass drum, 36 Kick, 37 Side stick, 38 Snare, 40 Snare 2, 39 Clap,
  41 Floor tom, 43 Floor tom 2, 45 Low tom, 47 Mid tom, 48 Mid tom 2, 50 High tom,
  44 Pedal hat, 42 Closed hat, 46 Open hat,
  51 Ride, 59 Ride 2, 53 Ride bell, 49 Crash, 57 Crash 2, 55 Splash, 52 China,
  54 Tambourine, 56 Cowbell, 58 Vibraslap, 60 High bongo, 61 Low bongo, 62 Mute conga, 63 Open conga,
  64 Low conga, 65 High timbale, 66 Low timbale, 67 High agogo, 68 Low agogo, 69 Cabasa, 70 Maracas,
  71 Whistle, 72 Long whistle, 73 Guiro, 74 Long guiro, 75 Claves, 76 Woodblock, 77 Low block,
  78 Mute cuica, 79 Open cuica, 80 Mute triangle, 81 Triangle`
    .split(/,\s+/)
    .map((drum) => [parseInt(drum, 10), drum.slice(3)]),
);
const DRUM_ORDER = new Map([...DRUMS.keys()].map((key, place) => [key, place]));
const drumPlace = (key) => DRUM_ORDER.get(key) ?? DRUMS.size + key;

/** Which of the --roll colours a layer has; where there is one instrument, new music has the accent. */
const colourName = (layer, isSolo) =>
  layer.isNew && isSolo ? "accent" : `${layer.isNew ? "new" : "old"}-${layer.hue % NUM_HUES}`;

const soundingLayers = (layers) => layers.filter((layer) => layer.notes.length);
const isSolo = (layers) => new Set(soundingLayers(layers).map((layer) => layer.hue)).size < 2;

/**
 * Reads "a,b;c,d;" into rows; a text that only grew is read from where it ended last time. `makeRow`
 * is told whether the row was added to others.
 */
function rowReader(makeRow) {
  let text = "";
  let rows = [];
  return (next) => {
    const isAddition = text !== "" && next.startsWith(text);
    if (!next.startsWith(text)) {
      text = "";
      rows = [];
    }
    if (next.length > text.length) {
      for (const item of next.slice(text.length).split(";")) {
        if (item) rows.push(makeRow(item.split(",").map(Number), isAddition));
      }
      text = next;
    }
    return rows;
  };
}

const noteReader = (isDrums) => () =>
  rowReader(([onset, duration, pitch, velocity], isAddition) => ({
    on: onset / UNITS_PER_BEAT,
    off: onset / UNITS_PER_BEAT + (isDrums ? DRUM_BEATS : duration / UNITS_PER_BEAT),
    pitch,
    velocity,
    born: isAddition ? performance.now() : -Infinity,
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

class Roll {
  constructor(canvas, overview, { onSeek }) {
    this.canvas = canvas;
    this.overview = overview;
    this.onSeek = onSeek;
    this.still = window.matchMedia("(prefers-reduced-motion: reduce)");
    this.map = document.createElement("canvas"); // all notes as the overview shows them
    this.layers = []; // {notes, longest, hue, drums, isNew}
    this.isSolo = true; // one instrument
    this.bars = [0];
    this.beats = true; // quarter notes are beats
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
    this.hasKeyboard = true;
    this.drums = []; // keys that occur, in the order of their rows, from the bottom
    this.lane = 0; // height of theirs in pixels
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
    const names = ["paper", "shade", "row", "beat", "bar", "text", "label", "white", "black", "edge", "head", "flash", "accent"];
    for (let hue = 0; hue < NUM_HUES; hue += 1) names.push(`old-${hue}`, `new-${hue}`);
    for (const name of names) this.colours[name] = colour(name);
    this.mapIsStale = true;
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
    this.mapIsStale = true;
    this.layOut();
    this.lane = this.wantedLane;
    this.request();
  }

  /** Room for the keys on the left and for the drums below. */
  layOut() {
    const isNarrow = this.canvas.clientWidth < 560;
    const room = this.canvas.clientHeight - RULER;
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
    this.layers = soundingLayers(scene.layers);
    this.isSolo = isSolo(scene.layers);
    this.bars = scene.bars.length ? scene.bars : [0];
    this.beats = scene.beats;
    this.joint = scene.joint;
    this.end = Math.max(scene.end, 4);
    this.cut = scene.cut;
    this.pen = scene.pen;
    this.mapIsStale = true;
    this.measure();
    this.layOut();
    if (reset) {
      [this.low, this.high] = this.wanted;
      this.lane = this.wantedLane;
      this.follow = true;
      this.target.span = Math.min(this.comfortableSpan(), this.end);
      this.lookAt(scene.focus ?? 0, true);
    } else if (this.follow && this.pen !== null) {
      this.lookAt(this.pen, false);
    }
    this.request();
  }

  /** Finds the range of the keyboard, and the drums that occur. */
  measure() {
    let low = 128;
    let high = -1;
    const drums = new Set();
    for (const layer of this.layers) {
      for (const note of layer.notes) {
        if (this.cut && !layer.isNew && note.on >= this.joint) continue;
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
      this.lane = ease(this.lane, this.wantedLane);
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

  /** Puts all notes on the map: it is drawn anew when they change, not when the view moves. */
  drawMap() {
    const scale = window.devicePixelRatio || 1;
    const pen = this.map.getContext("2d");
    const { colours } = this;
    const [low, high] = this.wanted;
    [this.map.width, this.map.height] = [this.overview.width, this.overview.height];
    const width = this.overview.clientWidth;
    const height = this.overview.clientHeight;
    const lane = this.drums.length && (this.hasKeyboard ? height * 0.32 : height);
    const floor = height - lane;
    const drumRow = (lane - 2 * LANE_EDGE) / Math.max(1, this.drums.length);
    const perBeat = width / Math.max(this.end, 1);
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.fillStyle = colours.paper;
    pen.fillRect(0, 0, width, height);
    if (this.joint > 0) {
      pen.fillStyle = colours.shade;
      pen.fillRect(0, 0, this.joint * perBeat, height);
    }
    if (lane && floor > 0) {
      pen.fillStyle = colours.bar;
      pen.fillRect(0, Math.round(floor), width, 1);
    }
    for (const layer of this.layers) {
      pen.fillStyle = colours[colourName(layer, this.isSolo)];
      for (const note of layer.notes) {
        const beyond = !layer.isNew && this.joint > 0 && note.on >= this.joint - 0.001;
        if (beyond && this.cut) continue;
        pen.globalAlpha = beyond ? 0.15 : 0.8;
        const left = note.on * perBeat;
        if (layer.drums) {
          const tall = Math.max(1.5, Math.min(drumRow - 0.5, 4));
          const middle = floor + LANE_EDGE + (this.drumRow.get(note.pitch) + 0.5) * drumRow;
          pen.fillRect(left, middle - tall / 2, 1.5, tall);
        } else {
          const top = ((high - note.pitch) / (high - low)) * (floor - 6) + 2;
          pen.fillRect(left, top, Math.max(1, (note.off - note.on) * perBeat), 1.5);
        }
      }
    }
    this.mapIsStale = false;
  }

  drawOverview() {
    const scale = window.devicePixelRatio || 1;
    const pen = this.overview.getContext("2d");
    const width = this.overview.clientWidth;
    const height = this.overview.clientHeight;
    const { colours } = this;
    if (!this.wanted || !width || !height) return;
    if (this.mapIsStale) this.drawMap();
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.drawImage(this.map, 0, 0);
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    const perBeat = width / Math.max(this.end, 1);
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
