// Gestures on the roll: click, drag, wheel and pinch. A mouse selects bars by dragging, and so does a finger
// on the bar numbers; otherwise a drag moves the view.

import { on } from "../dom.js";
import { ROW, RULER } from "./view.js";

export const CLICK_PIXELS = 6; // a shorter drag is a click

export class Gestures {
  fingers = new Map(); // pointer id to its place

  constructor(roll) {
    this.roll = roll;
    const { canvas } = roll;
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointermove", (event) => this.drag(event));
    on(canvas, "pointerup pointercancel", (event) => this.release(event));
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
  }

  press(event) {
    const { roll } = this;
    if (event.button > 0) return;
    roll.canvas.setPointerCapture(event.pointerId);
    this.fingers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    const [one, other] = [...this.fingers.values()];
    if (other) this.pinch = { distance: Math.max(20, Math.hypot(one.x - other.x, one.y - other.y)), span: roll.target.span };
    const selects = roll.canSelect && !other && event.offsetX > roll.keys && (event.pointerType === "mouse" || event.offsetY < roll.top);
    const isOnSections = event.offsetX > roll.keys && event.offsetY > RULER && event.offsetY < RULER + ROW;
    const section = roll.canSelect && !other && isOnSections ? roll.sectionAt(roll.beatAt(event)) : undefined;
    this.grip = { x: event.clientX, start: roll.target.start, moved: Boolean(other), selects, section, beat: roll.beatAt(event) };
  }

  drag(event) {
    const { roll } = this;
    const finger = this.fingers.get(event.pointerId);
    if (!finger) return;
    Object.assign(finger, { x: event.clientX, y: event.clientY });
    const [one, other] = [...this.fingers.values()];
    roll.canvas.classList.toggle("dragging", this.grip.moved && !this.grip.selects);
    if (other) {
      const distance = Math.max(20, Math.hypot(one.x - other.x, one.y - other.y));
      const left = roll.canvas.getBoundingClientRect().left + roll.keys;
      const around = ((one.x + other.x) / 2 - left) / (roll.canvas.clientWidth - roll.keys);
      roll.follow = false;
      roll.zoom((this.pinch.span * this.pinch.distance) / distance / roll.target.span, around);
      roll.view = { ...roll.target };
      return;
    }
    const far = event.clientX - this.grip.x;
    if (Math.abs(far) > CLICK_PIXELS) this.grip.moved = true;
    if (!this.grip.moved) return;
    roll.follow = false;
    if (this.grip.section && roll.fresh) {
      roll.onCarry(this.grip.section, event.offsetX, null);
      if (event.offsetX > roll.canvas.clientWidth - 24) roll.pan(roll.view.start + 12 / roll.perBeat);
      return;
    }
    if (this.grip.selects) {
      roll.onSelect(this.grip.beat, roll.beatAt(event));
      if (event.offsetX > roll.canvas.clientWidth - 24) roll.pan(roll.view.start + 12 / roll.perBeat);
      else if (event.offsetX < roll.keys + 12) roll.pan(roll.view.start - 12 / roll.perBeat);
      return;
    }
    roll.pan(this.grip.start - far / roll.perBeat);
    roll.view.start = roll.target.start;
  }

  release(event) {
    const { roll } = this;
    if (!this.fingers.delete(event.pointerId)) return;
    roll.canvas.classList.remove("dragging");
    const [left] = this.fingers.values();
    if (left) {
      this.grip = { x: left.x, start: roll.target.start, moved: true }; // one finger stays
      return;
    }
    const { section, selects, moved } = this.grip;
    if (section && moved && roll.fresh) roll.onCarry(section, 0, event.type === "pointerup" ? roll.beatAt(event) : -1);
    else if (selects && moved) roll.onSelect(null);
    const isClick = event.type === "pointerup" && !this.grip.moved && event.offsetX > roll.keys;
    if (isClick && section) {
      roll.onSelect(section.start, section.stop);
      roll.onSelect(null);
    } else if (isClick) roll.onSeek(roll.beatAt(event));
    this.pinch = this.grip = null;
  }

  wheel(event) {
    const { roll } = this;
    const across = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (event.ctrlKey || event.metaKey) {
      const around = (event.offsetX - roll.keys) / (roll.canvas.clientWidth - roll.keys);
      const step = Math.max(-50, Math.min(50, event.deltaY)); // a wheel has 100 and more, a touchpad less
      roll.zoom(Math.exp(step * 0.003), Math.max(0, around));
    } else if (Math.abs(across) > Math.abs(event.shiftKey ? 0 : event.deltaY)) {
      roll.follow = false;
      roll.pan(roll.target.start + across / roll.perBeat);
    } else return;
    event.preventDefault();
  }
}
