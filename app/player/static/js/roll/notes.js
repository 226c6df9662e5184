// Notes as packed by app/player/frames.py, their colours, and the names and order of drums.
// Times are quarter notes from the start of the piece.

export const UNITS_PER_BEAT = 96; // as in frames.py
export const NUM_HUES = 6; // as in player.css
const DRUM_BEATS = 0.25; // how long a drum lights up: its notes have no length
// Drums of General MIDI from the bottom of their lane to its top; keys without a name come above.
export const DRUMS = new Map(
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
export const drumPlace = (key) => DRUM_ORDER.get(key) ?? DRUMS.size + key;

/** Name of a layer's --roll colour; with a single instrument, new music has the accent colour. */
export const colourName = (layer, isSolo) =>
  layer.isNew && isSolo ? "accent" : `${layer.isNew ? "new" : "old"}-${layer.hue % NUM_HUES}`;

/** Hues repeat after NUM_HUES tracks: as solid notes, then hollow ones, then notes with a pale half. */
export const lookOf = (hue) => Math.floor(hue / NUM_HUES) % 3;

export const soundingLayers = (layers) => layers.filter((layer) => layer.notes.length);
export const isSolo = (layers) => new Set(soundingLayers(layers).map((layer) => layer.hue)).size < 2;

/**
 * Parses "a,b;c,d;" into rows; if the text has only grown since the last call, only the addition is
 * parsed. `makeRow` gets the numbers, and whether they were added to earlier rows.
 */
export function rowReader(makeRow) {
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

export const noteReader = (isDrums) => () =>
  rowReader(([onset, duration, pitch, velocity], isAddition) => ({
    on: onset / UNITS_PER_BEAT,
    off: onset / UNITS_PER_BEAT + (isDrums ? DRUM_BEATS : duration / UNITS_PER_BEAT),
    stop: (onset + duration) / UNITS_PER_BEAT,
    pitch,
    velocity,
    born: isAddition ? performance.now() : -Infinity,
  }));

/** Reads controllers and bends: {at, kind, value}. */
export const controlReader = () => rowReader(([unit, kind, value]) => ({ at: unit / UNITS_PER_BEAT, kind, value }));

/** First index whose key is not below the value, in rows sorted by key. */
export function lowerBound(rows, value, key) {
  let low = 0;
  let high = rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (key(rows[middle]) < value) low = middle + 1;
    else high = middle;
  }
  return low;
}
