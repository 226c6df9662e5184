// The strip below the roll: the whole piece, and which part of it is in view.

class RollOverview extends RollGestures {
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
      pen.fillRect(this.first * perBeat, 0, (this.joint - this.first) * perBeat, height);
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
        pen.globalAlpha = (beyond ? 0.15 : 0.8) * (layer.isQuiet ? 0.2 : 1);
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
    if (!this.wanted || !width || !height || !this.overview.width) return;
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
}
