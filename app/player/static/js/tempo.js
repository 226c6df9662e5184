// The tempo map: seconds at each quarter note, and the reverse.

import { lowerBound } from "./roll/notes.js";

export class TempoMap {
  /** `points`: rows of [quarter note, second], between which the tempo is constant. */
  constructor(points = [[0, 0]]) {
    this.points = points;
  }

  get seconds() {
    return this.points.at(-1)?.[1] ?? 0;
  }

  secondsAt(beat) {
    return Math.max(0, this.interpolate(beat, 0, 1));
  }

  beatAt(seconds) {
    return this.interpolate(seconds, 1, 0);
  }

  /** Straight line between the two points around a value; `from` and `to` are columns. */
  interpolate(value, from, to) {
    const { points } = this;
    const index = Math.max(1, Math.min(lowerBound(points, value, (point) => point[from]), points.length - 1));
    const [a, b] = [points[index - 1], points[index] ?? points[index - 1]];
    if (b[from] === a[from]) return a[to];
    return a[to] + ((value - a[from]) * (b[to] - a[to])) / (b[from] - a[from]);
  }
}
