// Pictures of the notes, side by side along the piece: each is drawn once and then only moved, so that
// thousands of notes cost no more than a few while the piece is played and scrolled.

const TILE = 512; // width of one in pixels of the device
const SPARE_TILES = 8; // kept beyond those in sight
const LEAST_WIDTH = 2.5; // of a note in pixels
const ZOOM_REST = 160; // milliseconds without zooming until notes are drawn in their new size
const QUIET = 0.2; // how pale muted tracks are

const loudness = (velocity) => 0.45 + (0.55 * velocity) / 127;

function clipTo(pen, left, top, width, height) {
  pen.beginPath();
  pen.rect(left, top, width, height);
  pen.clip();
}

/** A note's box in one of three looks; drums and small notes have no round corners. */
function fillNote(pen, look, left, top, width, height) {
  const isSmall = Math.min(width, height) < 3; // much faster, and as small looks the same
  if (look === 0 && isSmall) {
    pen.fillRect(left, top, width, height);
    return;
  }
  if (look === 2) {
    const { globalAlpha } = pen;
    pen.globalAlpha = globalAlpha * 0.4;
    pen.fillRect(left, top, width, height);
    pen.globalAlpha = globalAlpha;
    pen.fillRect(left, top, width, height / 2);
    return;
  }
  if (look === 1) {
    const { globalAlpha } = pen;
    pen.globalAlpha = globalAlpha * 0.3;
    pen.fillRect(left, top, width, height);
    pen.globalAlpha = globalAlpha;
    pen.strokeStyle = pen.fillStyle;
    pen.lineWidth = Math.min(1.5, height / 3);
    const edge = pen.lineWidth;
    pen.strokeRect(left + edge / 2, top + edge / 2, Math.max(0.5, width - edge), Math.max(0.5, height - edge));
    return;
  }
  pen.beginPath();
  pen.roundRect(left, top, width, height, Math.min(3, width / 2, height / 2));
  pen.fill();
}

class RollTiles extends RollOverview {
  tiles = new Map(); // number of the picture to its canvas
  drawn = { key: "", perBeat: 0, layers: [] }; // what they show

  /** Where notes lie: heights in pixels from the top. */
  measures() {
    const height = this.canvas.clientHeight;
    const floor = height - this.lane; // where the keyboard ends and the drums begin
    const row = (floor - RULER) / (this.high - this.low);
    const drumRow = (this.lane - 2 * LANE_EDGE) / Math.max(1, this.drums.length);
    return {
      width: this.canvas.clientWidth,
      height,
      floor,
      row,
      drumRow,
      y: (pitch) => RULER + (this.high - pitch - 1) * row,
      drumY: (key) => floor + LANE_EDGE + this.drumRow.get(key) * drumRow,
    };
  }

  /** Forgets pictures that are out of date: all of them, or those from where music was added. */
  refresh(now, perBeat) {
    const wanted = (this.canvas.clientWidth - this.keys) / this.target.span;
    const ratio = this.drawn.perBeat / wanted;
    const isZooming = now - (this.zoomedAt ?? -Infinity) < ZOOM_REST || Math.abs(perBeat / wanted - 1) > 0.01;
    const holds = isZooming && ratio > 0.4 && ratio < 2.5;
    if (isZooming) this.moving = true;
    const scale = holds ? this.drawn.perBeat : wanted;
    const key = [scale, this.low, this.high, this.lane, this.canvas.width, this.canvas.height, this.isSolo, this.drums].join();
    const before = this.drawn.layers;
    const isSame = (layer, old) =>
      old && layer.notes === old.notes && layer.isQuiet === old.isQuiet && layer.hue === old.hue && layer.notes.length >= old.count;
    let from = Infinity;
    const isOld = this.isStale || key !== this.drawn.key || before.some((old, index) => !isSame(this.layers[index] ?? {}, old));
    if (isOld) from = -Infinity;
    this.layers.forEach((layer, index) => {
      const count = before[index]?.count ?? 0;
      if (layer.notes.length > count) from = Math.min(from, layer.notes[count].on);
    });
    if (from === -Infinity) this.tiles.clear();
    else if (from < Infinity) {
      const first = Math.floor((from * scale - 12) / this.tileWidth());
      for (const number of this.tiles.keys()) if (number >= first) this.tiles.delete(number);
    }
    const layers = this.layers.map((layer) => ({ ...layer, count: layer.notes.length }));
    this.drawn = { key, perBeat: scale, layers };
    this.isStale = false;
  }

  tileWidth() {
    return TILE / (window.devicePixelRatio || 1);
  }

  /** Puts the pictures in sight on the roll; while it is zoomed they are stretched. */
  drawTiles(pen, now) {
    this.refresh(now, this.perBeat);
    const scale = window.devicePixelRatio || 1;
    const stretch = this.perBeat / this.drawn.perBeat;
    const wide = this.tileWidth() * stretch;
    const offset = this.view.start * this.perBeat;
    const width = this.canvas.clientWidth - this.keys;
    const first = Math.floor(offset / wide);
    const last = Math.floor((offset + width) / wide);
    const isWhole = Math.abs(stretch - 1) < 1e-6;
    pen.save();
    pen.setTransform(1, 0, 0, 1, 0, 0);
    let made = 0;
    for (let number = Math.max(0, first); number <= last; number += 1) {
      if (!this.tiles.has(number)) made += 1;
      const tile = this.tile(number);
      const left = (this.keys + number * wide - offset) * scale;
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

  /** One picture beside the view, so that it is there when it comes into sight. */
  drawAhead(first, last) {
    const end = (this.end * this.drawn.perBeat) / this.tileWidth();
    const next = [last + 1, first - 1].find((number) => number >= 0 && number < end && !this.tiles.has(number));
    if (next === undefined) return;
    this.tile(next);
  }

  tile(number) {
    const known = this.tiles.get(number);
    if (known) return known;
    const tile = document.createElement("canvas");
    [tile.width, tile.height] = [TILE, this.canvas.height];
    const scale = window.devicePixelRatio || 1;
    const pen = tile.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, -number * TILE, 0);
    const { perBeat } = this.drawn;
    const begin = (number * this.tileWidth() - 12) / perBeat;
    const end = ((number + 1) * this.tileWidth()) / perBeat;
    const quietFirst = [...this.layers].sort((one, other) => Boolean(other.isQuiet) - Boolean(one.isQuiet));
    for (const layer of quietFirst) this.drawLayer(pen, layer, begin, end, (beat) => beat * perBeat);
    this.tiles.set(number, tile);
    return tile;
  }

  /** What is seen of a note: where it ends, or null where it is cut away. */
  seenEnd(layer, note) {
    if (!this.cut || layer.isNew || this.joint <= 0) return note.off;
    return note.on >= this.joint - 0.001 ? null : Math.min(note.off, this.joint);
  }

  /** Draws a layer's notes between two beats. */
  drawLayer(pen, layer, begin, end, x) {
    const place = this.placer(layer, x);
    const quiet = layer.isQuiet ? QUIET : 1;
    const look = lookOf(layer.hue);
    const [begins, ends] = [0, 1].map(() => new Float64Array(128).fill(-Infinity)); // of each key's last note
    pen.save();
    if (!layer.drums) {
      const { floor } = this.measures();
      clipTo(pen, x(begin), RULER, x(end) - x(begin) + 12, floor - RULER);
    }
    pen.fillStyle = this.colours[colourName(layer, this.isSolo)];
    for (let index = lowerBound(layer.notes, begin - layer.longest, (note) => note.on); index < layer.notes.length; index += 1) {
      const note = layer.notes[index];
      if (note.on > end) break;
      const off = this.seenEnd(layer, note);
      if (off === null || off < begin) continue;
      const [left, top, width, height] = place(note, off);
      const isCovered = left < begins[note.pitch] + 1 && left + width < ends[note.pitch] + 1;
      if (isCovered) continue; // thousands of notes, not one to be seen
      begins[note.pitch] = left;
      ends[note.pitch] = left + width;
      pen.globalAlpha = quiet * loudness(note.velocity);
      fillNote(pen, look, left, top, width, height);
    }
    pen.restore();
  }

  /** The box of a layer's note on the roll: left, top, width, height. */
  placer(layer, x) {
    const { row, drumRow, y, drumY } = this.measures();
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
