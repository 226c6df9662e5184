// The roll: what is on the canvas in each frame. It knows no audio and no server; player.js tells it
// what to show.

const FRESH_MS = 700;
const VEIL = { before: 0.5, after: 0.8 }; // over what the model does not hear, and what will be cut off

class Roll extends RollSides {
  /** Draws the view; true where something goes on moving by itself. */
  draw(now) {
    const scale = window.devicePixelRatio || 1;
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
    this.drawRows(pen, place);
    this.drawBars(pen, place);
    this.drawTiles(pen, now);
    const { keys, drums, fresh } = this.drawLights(pen, now);
    if (!this.cut && this.joint > 0) this.drawVeils(pen, place);
    this.drawMarks(pen, height);
    pen.restore();
    if (floor > RULER + 1) this.drawKeys(pen, place, keys);
    if (this.lane > 1) this.drawDrumNames(pen, place, drums);
    this.drawRuler(pen, place);
    this.drawPlayhead(pen, height);
    return fresh;
  }

  /** Notes that sound now, and those written a moment ago: the only ones that are drawn each time. */
  drawLights(pen, now) {
    const [keys, drums] = [new Map(), new Map()];
    let fresh = false;
    for (const layer of this.layers) {
      const place = this.placer(layer, (beat) => this.x(beat));
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

  /** Pales what lies outside of the prompt's region. */
  drawVeils(pen, { width, height }) {
    pen.fillStyle = this.colours.paper;
    pen.globalAlpha = VEIL.before;
    if (this.first > 0) pen.fillRect(this.keys, RULER, this.x(this.first) - this.keys, height);
    pen.globalAlpha = VEIL.after;
    const joint = Math.max(this.keys, this.x(this.joint));
    pen.fillRect(joint, RULER, Math.max(0, width - joint), height);
    pen.globalAlpha = 1;
  }

  /** The joint, and where the model is writing. */
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

  /** Its knob stands below the bar numbers, whole even at the first beat. */
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
