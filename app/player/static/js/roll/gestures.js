// How the user moves in the roll: drag, wheel, two fingers, and the overview.

const CLICK_PIXELS = 6; // what moves less is a click

class RollGestures extends RollView {
  listen() {
    this.fingers = new Map();
    const { canvas } = this;
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointermove", (event) => this.drag(event));
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => this.release(event));
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.listenToOverview();
  }

  press(event) {
    if (event.button > 0) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.fingers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    const [one, other] = [...this.fingers.values()];
    if (other) this.pinch = { distance: Math.max(20, Math.hypot(one.x - other.x, one.y - other.y)), span: this.target.span };
    this.grip = { x: event.clientX, start: this.target.start, moved: Boolean(other) };
  }

  drag(event) {
    const finger = this.fingers.get(event.pointerId);
    if (!finger) return;
    Object.assign(finger, { x: event.clientX, y: event.clientY });
    const [one, other] = [...this.fingers.values()];
    this.canvas.classList.toggle("dragging", this.grip.moved);
    if (other) {
      const distance = Math.max(20, Math.hypot(one.x - other.x, one.y - other.y));
      const left = this.canvas.getBoundingClientRect().left + this.keys;
      const around = ((one.x + other.x) / 2 - left) / (this.canvas.clientWidth - this.keys);
      this.follow = false;
      this.zoom((this.pinch.span * this.pinch.distance) / distance / this.target.span, around);
      this.view = { ...this.target };
      return;
    }
    const far = event.clientX - this.grip.x;
    if (Math.abs(far) > CLICK_PIXELS) this.grip.moved = true;
    if (!this.grip.moved) return;
    this.follow = false;
    this.pan(this.grip.start - far / this.perBeat);
    this.view.start = this.target.start;
  }

  release(event) {
    if (!this.fingers.delete(event.pointerId)) return;
    this.canvas.classList.remove("dragging");
    const [left] = this.fingers.values();
    if (left) {
      this.grip = { x: left.x, start: this.target.start, moved: true }; // goes on with one finger
      return;
    }
    if (event.type === "pointerup" && !this.grip.moved && event.offsetX > this.keys) this.onSeek(this.beatAt(event));
    this.pinch = this.grip = null;
  }

  wheel(event) {
    const across = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (event.ctrlKey || event.metaKey) {
      const around = (event.offsetX - this.keys) / (this.canvas.clientWidth - this.keys);
      const step = Math.max(-50, Math.min(50, event.deltaY)); // a wheel has 100 and more, a touchpad less
      this.zoom(Math.exp(step * 0.003), Math.max(0, around));
    } else if (Math.abs(across) > Math.abs(event.shiftKey ? 0 : event.deltaY)) {
      this.follow = false;
      this.pan(this.target.start + across / this.perBeat);
    } else return;
    event.preventDefault();
  }

  listenToOverview() {
    const { overview } = this;
    let dragging = false;
    const centre = (event) => {
      const beat = (event.offsetX / overview.clientWidth) * this.end;
      this.follow = false;
      this.pan(beat - this.target.span / 2);
    };
    overview.addEventListener("pointerdown", (event) => {
      dragging = true;
      overview.setPointerCapture(event.pointerId);
      centre(event);
    });
    overview.addEventListener("pointermove", (event) => dragging && centre(event));
    for (const name of ["pointerup", "pointercancel"]) {
      overview.addEventListener(name, () => {
        dragging = false;
      });
    }
  }
}
