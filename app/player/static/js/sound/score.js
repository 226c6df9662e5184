// A piece as rows of numbers, which the page makes and the thread of the audio hardware plays.

/** Numbers of a row: second, channel, kind, and of a note its pitch, velocity and end, or the value of a control. */
export const WIDTH = 6;
export const ON = 1000; // the kind of a note; other kinds are controllers, and
export const BEND = 128; // of pitch, from -8192 to 8191; as in frames.py
export const HAND = 0; // the channel of keys that are played by hand; those of tracks follow
export const FIRST_CHANNEL = 1;

/**
 * `tracks`: {notes: [{on, stop, pitch, velocity}], controls: [{at, kind, value}]} by channel, times in quarter
 * notes; `tempo`: the `TempoMap`. Returns the rows in order of time; at the same time, controls come first.
 */
export function rowsOf(tracks, tempo) {
  const rows = [];
  tracks.forEach(({ notes, controls }, index) => {
    for (const { on, stop, pitch, velocity } of notes) {
      rows.push([tempo.secondsAt(on), FIRST_CHANNEL + index, ON, pitch, velocity, tempo.secondsAt(stop)]);
    }
    for (const { at, kind, value } of controls) rows.push([tempo.secondsAt(at), FIRST_CHANNEL + index, kind, value, 0, 0]);
  });
  rows.sort((one, other) => one[0] - other[0] || one[2] - other[2]);
  const packed = new Float64Array(rows.length * WIDTH);
  rows.forEach((row, index) => packed.set(row, index * WIDTH));
  return packed;
}

/** About the energy of a piece per second: tones of velocity 127 have one, and grow with the fourth power of velocity. */
export function energyOf(tracks, tempo) {
  let [energy, first, last] = [0, Infinity, 0];
  for (const { notes } of tracks) {
    for (const { on, stop, velocity } of notes) {
      const [begin, end] = [tempo.secondsAt(on), tempo.secondsAt(stop)];
      [first, last] = [Math.min(first, begin), Math.max(last, end)];
      energy += (velocity / 127) ** 4 * Math.max(0.25, Math.min(end - begin, 1)); // drums sound on, and pianos fade
    }
  }
  return energy / Math.max(1, last - first);
}
