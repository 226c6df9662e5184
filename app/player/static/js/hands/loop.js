// Playback of a region again and again: by the synthesizer, or else by moving the position.

const LATE_SECONDS = 0.4; // behind the end, the user has moved the position on purpose

export class Loop {
  isOn = false;
  region = null; // {from, to} in quarter notes

  constructor(sound) {
    this.sound = sound;
  }

  /** Seconds of the region; null while nothing is looped. */
  get span() {
    const { region, sound } = this;
    if (!this.isOn || !region) return null;
    const [from, to] = [sound.tempo.secondsAt(region.from), sound.tempo.secondsAt(region.to)];
    return to - from > 0.2 ? { from, to } : null;
  }

  set(isOn) {
    this.isOn = isOn;
    this.show();
    const { sound, span } = this;
    if (span && (sound.position < span.from - 0.05 || sound.position >= span.to)) sound.seek(this.region.from);
  }

  /** Takes note of another region or tempo. */
  show() {
    this.sound.setLoop(this.span);
  }

  /** Called while the sound plays: where there is no synthesizer, goes back to the start at the end of the region. */
  step() {
    const { span, sound } = this;
    if (!span || sound.hasSynth || !sound.isPlaying) return;
    if (sound.position >= span.to && sound.position < span.to + LATE_SECONDS) sound.seek(this.region.from);
  }
}
