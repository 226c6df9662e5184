// Hands on the music that is shown: a loop, a metronome, tempo, transposition, and edits of notes. Edits
// change the piece itself, so playback, downloads and what is continued agree.

import { BUSY_REASON, grey, write } from "../dom.js";
import { clipTo, fill } from "../roll/pen.js";
import { RULER } from "../roll/view.js";
import { Editor } from "./editor.js";
import { Loop } from "./loop.js";
import { Metronome } from "./metronome.js";
import { Pencil } from "./pencil.js";
import { TrackSound } from "./track_sound.js";

const TEMPO_RANGE = [20, 300]; // quarter notes per minute
const MOST_SEMITONES = 24;
const TOUCH_SECONDS = 0.4; // for which a touched note sounds
const SEND_MS = 700; // delay between the last click and the edit
const EDITS = ["slower", "faster", "lower", "higher", "edit"];
const NO_CHANGE = { semitones: 0, tempo: 1, programs: [], volumes: [] }; // tempo: a factor
const NO_NOTE = "Select a note on the roll first: click it, or press the full stop key.";

export class Hands {
  isPending = false; // an edit was sent, and the edited piece has not come yet
  asked = NO_CHANGE; // not sent yet, and
  sent = NO_CHANGE; // on its way

  /** `onEdit(edit)`: {added, moved, removed, velocities, semitones, tempo, programs, volumes} as in edits.py. */
  constructor(part, roll, sound, { onEdit }) {
    Object.assign(this, { part, roll, sound, onEdit });
    this.trackSound = new TrackSound(part, { onChange: (edit) => this.setSound(edit) });
    this.loop = new Loop(sound);
    this.metronome = new Metronome(sound);
    const onTouch = (id, pitch, velocity) => sound.touch(id, pitch, velocity, TOUCH_SECONDS);
    this.pencil = new Pencil(part, roll, { onTouch, onAdd: (row) => this.editor.add(row) });
    this.editor = new Editor(roll, this.pencil, { onEdit: (edit) => this.send(edit), onChange: () => this.showTools(), onTouch });
    part("note-velocity").addEventListener("input", () => this.pencil.say());
    part("note-velocity").addEventListener("change", () => this.editor.setVelocity(this.pencil.velocity));
    roll.onOverlay = (pen) => this.draw(pen);
    sound.onStep = () => {
      this.loop.step();
      this.metronome.step();
    };
    const toggle = (name, one) => (event) => {
      one.set(event.currentTarget.getAttribute("aria-pressed") !== "true");
      part(name).setAttribute("aria-pressed", one.isOn);
      this.showTools();
      roll.request();
    };
    const { editor } = this;
    const clicks = {
      loop: toggle("loop", this.loop),
      metronome: toggle("metronome", this.metronome),
      edit: toggle("edit", editor),
      pencil: toggle("pencil", this.pencil),
      slower: (event) => this.retime(event.shiftKey ? -10 : -1),
      faster: (event) => this.retime(event.shiftKey ? 10 : 1),
      lower: (event) => this.transpose(event.shiftKey ? -12 : -1),
      higher: (event) => this.transpose(event.shiftKey ? 12 : 1),
      "note-delete": () => editor.remove(),
      "note-earlier": () => editor.nudge({ later: -0.25 }),
      "note-later": () => editor.nudge({ later: 0.25 }),
      "note-up": () => editor.nudge({ higher: 1 }),
      "note-down": () => editor.nudge({ higher: -1 }),
      "note-shorter": () => editor.nudge({ longer: -0.25 }),
      "note-longer": () => editor.nudge({ longer: 0.25 }),
    };
    for (const [name, call] of Object.entries(clicks)) part(name).addEventListener("click", call);
  }

  /**
   * `scene`: what the roll shows, or null; `region`: the bars to loop, {from, to} in quarter notes and the text
   * that says which; `bpm`: the tempo, by default the first one; `canEdit`; `isBusy`; `rows`: those of the tracks.
   */
  show(scene, { region = null, bpm, canEdit = false, isBusy = false, rows = [] } = {}) {
    const { part, sound } = this;
    part("hands").hidden = !scene;
    [this.isPending, this.sent] = [false, NO_CHANGE];
    this.isBusy = isBusy;
    for (const name of EDITS) grey(part(name), canEdit ? "" : isBusy ? BUSY_REASON : "This music cannot be edited.");
    this.loop.region = region;
    write(part("loop"), region ? `Play ${region.text} again and again` : "", "title");
    this.metronome.show(scene?.bars, scene?.beats);
    this.bpm = bpm ?? 60 / Math.max(0.01, sound.tempo.secondsAt(1) - sound.tempo.secondsAt(0));
    this.pencil.show(rows);
    this.editor.show(canEdit);
    this.trackSound.show(canEdit || isBusy ? rows : [], isBusy);
    this.loop.show();
    this.showNumbers();
  }

  /** Transposition and tempo that the user wants, compared with the piece that is shown. */
  get wanted() {
    const { sent, asked } = this;
    return { semitones: sent.semitones + asked.semitones, tempo: sent.tempo * asked.tempo };
  }

  showNumbers() {
    const { semitones, tempo } = this.wanted;
    write(this.part("tempo"), `${Math.round(this.bpm * tempo)} bpm`);
    this.sound.alter({ tempo, semitones });
    write(this.part("semitones"), semitones ? `${semitones > 0 ? "+" : "−"}${Math.abs(semitones)}` : "Transpose");
  }

  showTools() {
    const { part, editor } = this;
    const count = editor.chosen.size;
    part("note-tools").hidden = !editor.isOn;
    const why = editor.canEdit ? "" : this.isBusy ? BUSY_REASON : "This music cannot be edited.";
    for (const button of part("note-moves").querySelectorAll("button")) grey(button, why || (count ? "" : NO_NOTE));
    for (const name of ["pencil", "note-velocity", "note-track"]) grey(part(name), why);
    this.pencil.follow(editor.picked());
    const empty = this.pencil.isOn ? "Press and drag where there is no note" : "Click a note, or drag around several";
    write(part("note-count"), count ? `${count} ${count === 1 ? "note" : "notes"}` : empty);
  }

  retime(by) {
    const [least, most] = TEMPO_RANGE;
    const now = this.bpm * this.wanted.tempo;
    const next = Math.max(Math.min(least, now), Math.min(Math.round(now) + by, Math.max(most, now)));
    this.asked = { ...this.asked, tempo: (this.asked.tempo * next) / now };
    this.sendSoon();
  }

  transpose(by) {
    const semitones = Math.max(-MOST_SEMITONES, Math.min(this.asked.semitones + by, MOST_SEMITONES));
    this.asked = { ...this.asked, semitones };
    this.sendSoon();
  }

  /** Changes instruments and volumes of tracks: {programs, volumes}, pairs of an id and a value. */
  setSound({ programs = [], volumes = [] }) {
    this.sound.alter({ programs, volumes });
    const { asked } = this;
    const merged = (known, added) => [...new Map([...known, ...added])];
    this.asked = { ...asked, programs: merged(asked.programs, programs), volumes: merged(asked.volumes, volumes) };
    this.sendSoon();
  }

  sendSoon() {
    this.showNumbers();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      const { asked } = this;
      if (!asked.semitones && asked.tempo === 1 && !asked.programs.length && !asked.volumes.length) return;
      if (!this.send(asked)) return this.sendSoon();
      [this.sent, this.asked] = [asked, NO_CHANGE];
    }, SEND_MS);
  }

  /** Sends an edit, one at a time; returns whether it was sent. */
  send(edit) {
    if (this.isPending) return false;
    this.isPending = true;
    this.onEdit(edit);
    return true;
  }

  /** What lies over the notes: the loop below the bar numbers, and selected notes. */
  draw(pen) {
    const { roll, loop } = this;
    pen.save();
    clipTo(pen, roll.keys, 0, roll.canvas.clientWidth, roll.canvas.clientHeight);
    if (loop.isOn && loop.region) {
      const [left, right] = [roll.x(loop.region.from), roll.x(loop.region.to)];
      fill(pen, roll.colours.accent, left, RULER - 4, right - left, 4, 0.9);
    }
    this.editor.draw(pen);
    pen.restore();
  }
}
