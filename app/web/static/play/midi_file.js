// Writes a Standard MIDI file of one track.

import { TICKS } from "./take.js";

const bytes = (text) => [...text].map((letter) => letter.charCodeAt(0));
const number = (value, size) => Array.from({ length: size }, (_, place) => (value >>> (8 * (size - 1 - place))) & 255);
const chunk = (name, content) => [...bytes(name), ...number(content.length, 4), ...content];

/** A number in groups of seven bits, the highest first. */
function variable(value) {
  const groups = [value & 127];
  for (let rest = value >>> 7; rest; rest >>>= 7) groups.unshift((rest & 127) | 128);
  return groups;
}

/** The bytes of a finished take: its tempo in beats of the metre per minute, and its General MIDI program. */
export function midiFile({ notes, pedal, bars }, { tempo, metre, program }) {
  const off = 0; // of events on the same tick: notes end before others begin
  const quarter = Math.round((60_000_000 * TICKS) / (tempo * metre.beat)); // microseconds
  const clicks = (24 * metre.beat) / TICKS; // MIDI clocks between clicks of a metronome
  const events = [
    { tick: 0, order: off, data: [0xff, 0x51, 3, ...number(quarter, 3)] },
    { tick: 0, order: off, data: [0xff, 0x58, 4, metre.numerator, Math.log2(metre.denominator), clicks, 8] },
    { tick: 0, order: off, data: [0xc0, program] },
    ...pedal.map(({ tick, value }) => ({ tick, order: 1, data: [0xb0, 64, value] })),
    ...notes.flatMap((note) => [
      { tick: note.on, order: 2, data: [0x90, note.pitch, note.velocity] },
      { tick: note.off, order: off, data: [0x80, note.pitch, 64] },
    ]),
    { tick: bars * metre.bar, order: 3, data: [0xff, 0x2f, 0] },
  ].sort((a, b) => a.tick - b.tick || a.order - b.order);
  let before = 0;
  const content = events.flatMap(({ tick, data }) => {
    const wait = tick - before;
    before = tick;
    return [...variable(wait), ...data];
  });
  const head = chunk("MThd", [...number(0, 2), ...number(1, 2), ...number(TICKS, 2)]);
  return Uint8Array.from([...head, ...chunk("MTrk", content)]);
}
