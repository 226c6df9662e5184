// What the roll shows and how the user moves in it: notes, range of keys, part of the piece. It draws
// nothing itself: roll_overview.js and roll.js add `drawOverview` and `draw`.

const RULER = 24;
const LANE_EDGE = 2; // pixels above the drums and below them
const LEAST_SEMITONES = 30;

class RollView {
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
