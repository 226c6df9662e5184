// What surrounds the notes: the keyboard, drum names, bar lines, and the ruler above.

import { DRUMS, lowerBound } from "./notes.js";
import { clipTo, fill } from "./pen.js";
import { BAND, LANE_EDGE, ROW, RULER } from "./view.js";

const BLACK_KEYS = new Set([1, 3, 6, 8, 10]);

export function drawRows(pen, roll, { y, row, floor, drumRow, width }) {
  pen.fillStyle = roll.colours.row;
  for (let pitch = Math.floor(roll.low); pitch < roll.high; pitch += 1) {
    const tall = Math.min(row, floor - y(pitch));
    if (tall > 0 && BLACK_KEYS.has(((pitch % 12) + 12) % 12)) pen.fillRect(roll.keys, y(pitch), width, tall);
  }
  for (let index = 1; index < roll.drums.length; index += 2) {
    pen.fillRect(roll.keys, floor + LANE_EDGE + index * drumRow, width, drumRow);
  }
}

/** The number of bars from one bar number to the next, and the width of a bar. */
function barSteps(roll) {
  const { bars } = roll;
  const wide = roll.perBeat * ((bars.at(-1) - bars[0]) / (bars.length - 1) || 4);
  return { wide, step: Math.max(1, 2 ** Math.ceil(Math.log2(44 / Math.max(wide, 0.01)))) };
}

/** Calls `call` with the index and position of each bar line in view. */
function eachBar(roll, call) {
  const last = roll.view.start + roll.view.span;
  const first = Math.max(0, lowerBound(roll.bars, roll.view.start, (bar) => bar) - 1);
  for (let index = first; index < roll.bars.length && roll.bars[index] <= last; index += 1) call(index, roll.bars[index]);
}

export function drawBars(pen, roll, { height }) {
  const { bars, colours } = roll;
  const last = roll.view.start + roll.view.span;
  const { wide, step } = barSteps(roll);
  eachBar(roll, (index, bar) => {
    if (roll.beats && roll.perBeat > 13) {
      const next = Math.min(bars[index + 1] ?? roll.end, last);
      pen.fillStyle = colours.beat;
      for (let beat = bar + 1; beat < next - 0.01; beat += 1) pen.fillRect(Math.round(roll.x(beat)), roll.top, 1, height);
    }
    if (index % step && wide <= 10) return;
    fill(pen, colours.bar, Math.round(roll.x(bar)), roll.top, 1, height);
  });
}

/** Bar numbers, the region of the prompt below them, and the rows of form and chords. */
export function drawRuler(pen, roll, { width }) {
  const { bars, colours, top } = roll;
  const { step } = barSteps(roll);
  fill(pen, colours.paper, 0, 0, width, top);
  pen.save();
  clipTo(pen, roll.keys, 0, width, top);
  if (roll.gap) fill(pen, colours.accent, roll.x(roll.gap.start), BAND, roll.x(roll.gap.stop) - roll.x(roll.gap.start), RULER - BAND, 0.25);
  else if (roll.splice > 0) fill(pen, colours.shade, roll.x(roll.first), BAND, roll.x(roll.splice) - roll.x(roll.first), RULER - BAND);
  pen.font = `11px ${roll.font}`;
  eachBar(roll, (index, bar) => {
    if (index % step) return;
    fill(pen, colours.bar, Math.round(roll.x(bar)), 6, 1, RULER - 6);
    if (index === bars.length - 1) return;
    pen.fillStyle = colours.text;
    pen.fillText(String(index + 1), roll.x(bar) + 5, 11);
  });
  if (roll.sheet) drawSheet(pen, roll);
  pen.restore();
  fill(pen, colours.bar, roll.keys - 1, top, 1, roll.canvas.clientHeight);
  pen.fillRect(0, top - 1, width, 1);
}

/** The sections of the piece, with its chords below. A chord is written where it changes. */
function drawSheet(pen, roll) {
  const { bars, colours, sheet } = roll;
  const lineOf = (bar) => roll.x(bars[Math.min(bar, bars.length - 1)]);
  const write = (text, left, right, middle) => {
    if (right - left < 8) return;
    pen.save();
    clipTo(pen, left, middle - ROW / 2, right - left, ROW);
    pen.fillText(text, left + 5, middle + 0.5);
    pen.restore();
  };
  const seen = (left, right) => right > roll.keys && left < roll.canvas.clientWidth;
  sheet.sections.forEach(([letter, first, count]) => {
    const [left, right] = [lineOf(first - 1), lineOf(first - 1 + count)];
    if (!seen(left, right)) return;
    fill(pen, colours.shade, left + 1, RULER + 2, Math.max(1, right - left - 2), ROW - 3);
    pen.font = `600 11px ${roll.font}`;
    pen.fillStyle = colours.head;
    write(letter, Math.max(left, roll.keys), right, RULER + ROW / 2);
  });
  pen.font = `11px ${roll.font}`;
  pen.fillStyle = colours.head;
  const from = Math.max(0, lowerBound(bars, roll.view.start, (bar) => bar) - 8);
  for (let index = from; index < sheet.chords.length && bars[index] < roll.view.start + roll.view.span; index += 1) {
    const chord = sheet.chords[index];
    if (!chord || (index && chord === sheet.chords[index - 1])) continue;
    let next = index + 1;
    while (next < sheet.chords.length && sheet.chords[next] === chord) next += 1;
    write(chord, Math.max(lineOf(index), roll.keys), lineOf(next), RULER + ROW * 1.5);
  }
  // dots below the bars without the chords that were asked
  for (const bar of sheet.missed ?? []) {
    const [left, right] = [Math.max(lineOf(bar) + 4, roll.keys), lineOf(bar + 1) - 3];
    for (let at = left; at < right; at += 4) fill(pen, colours.head, at, RULER + ROW * 2 - 3, 2, 2);
  }
}

export function drawKeys(pen, roll, { y, row, floor }, sounding) {
  const { colours } = roll;
  pen.save();
  clipTo(pen, 0, roll.top, roll.keys, floor - roll.top);
  fill(pen, colours.white, 0, 0, roll.keys, floor);
  pen.font = `${roll.keys < 40 ? 9 : 10}px ${roll.font}`;
  for (let pitch = Math.floor(roll.low) - 1; pitch <= roll.high; pitch += 1) {
    const tone = ((pitch % 12) + 12) % 12;
    const top = y(pitch);
    const lit = sounding.get(pitch);
    if (BLACK_KEYS.has(tone)) {
      fill(pen, lit ?? colours.black, 0, top, roll.keys * (roll.keys < 40 ? 0.4 : 0.58), row);
      continue;
    }
    if (lit) fill(pen, lit, 0, top - (tone === 4 || tone === 11 ? 0 : row * 0.4), roll.keys - 1, row * 1.4);
    if (tone === 0 || tone === 5) fill(pen, colours.edge, 0, top + row - 0.5, roll.keys, 1);
    if (tone === 0 && row > 2.5) {
      pen.fillStyle = colours.label;
      pen.textAlign = "right";
      pen.fillText(`C${pitch / 12 - 1}`, roll.keys - 3, top + row / 2);
      pen.textAlign = "left";
    }
  }
  pen.restore();
}

export function drawDrumNames(pen, roll, { drumY, drumRow, floor, width, height }, sounding) {
  const { colours, keys } = roll;
  fill(pen, colours.paper, 0, floor, keys, height);
  for (const [key, colour] of sounding) {
    fill(pen, colour, 0, drumY(key), keys - 1, drumRow);
  }
  pen.font = `${Math.max(9, Math.min(drumRow - 1, 11))}px ${roll.font}`;
  pen.textAlign = "right";
  const isFitting = (name) => pen.measureText(name).width <= keys - 7;
  const nameOf = (key) => DRUMS.get(key) ?? `Key ${key}`;
  const named = drumRow >= 9.5 ? roll.drums.filter((key) => isFitting(nameOf(key))) : [];
  for (const key of named) {
    pen.fillStyle = sounding.has(key) ? colours.paper : colours.text;
    pen.fillText(nameOf(key), keys - 5, drumY(key) + drumRow / 2 + 0.5);
  }
  if (!named.length && isFitting("Drums")) {
    pen.fillStyle = colours.text;
    pen.fillText("Drums", keys - 5, floor + roll.lane / 2);
  }
  pen.textAlign = "left";
  if (!roll.hasKeyboard) return;
  fill(pen, colours.bar, 0, Math.round(floor), width, 1);
}
