// Playback of a region again and again. The second audio element waits at the start of the region, so that
// the change at its end has no gap.

const EARLY_SECONDS = 0.03; // before the end, at which the change begins: half of the cross-fade
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
    const { sound, span } = this;
    if (!span) return;
    const { position } = sound;
    if (position < span.from - 0.05 || position >= span.to) sound.seek(this.region.from);
    this.prepare();
  }

  /** Puts the second element at the start of the region, unless it loads another sound. */
  prepare() {
    const { span, sound } = this;
    if (span && sound.isLoaded && !sound.making) sound.wait(span.from).catch(() => {});
  }

  /** Called while the sound plays: goes back to the start at the end of the region. */
  step() {
    const { span, sound } = this;
    if (!span || sound.deck.paused) return;
    const { position } = sound;
    if (position < span.to - EARLY_SECONDS || position > span.to + LATE_SECONDS) {
      if (!sound.isWaiting(span.from) && !this.isPreparing && position < span.to - 0.3) {
        this.isPreparing = true;
        setTimeout(() => {
          this.isPreparing = false;
          this.prepare();
        }, 200); // the old element fades out first
      }
      return;
    }
    if (sound.isWaiting(span.from)) sound.exchange(true);
    else sound.seek(this.region.from);
    this.laps = (this.laps ?? 0) + 1;
  }
}
