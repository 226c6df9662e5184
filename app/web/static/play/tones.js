// The clicks of the metronome, and simple tones for keys while there is no synthesizer.

const RELEASE = 0.12; // seconds until a tone has faded after its key is released
const LONGEST = 4; // seconds of a tone

export class Tones {
  sounding = new Map(); // gain of each tone, by pitch
  context = null;

  /** The clock of the sound; made on the first click or key, before which browsers allow no sound. */
  wake() {
    this.context ??= new AudioContext({ latencyHint: "interactive" });
    this.context.resume();
    return this.context;
  }

  /** Seconds from a time of the clock until it is heard. */
  get latency() {
    return this.context.outputLatency || this.context.baseLatency || 0;
  }

  press(pitch, velocity) {
    const context = this.wake();
    this.release(pitch);
    const now = context.currentTime;
    const gain = new GainNode(context, { gain: 0 });
    const frequency = 440 * 2 ** ((pitch - 69) / 12);
    const tone = new OscillatorNode(context, { type: "triangle", frequency });
    tone.connect(gain).connect(context.destination);
    gain.gain.setTargetAtTime(0.3 * (velocity / 127) ** 2, now, 0.004);
    gain.gain.setTargetAtTime(0, now + 0.03, 0.9);
    tone.start(now);
    tone.stop(now + LONGEST);
    this.sounding.set(pitch, { gain, tone });
  }

  release(pitch) {
    const voice = this.sounding.get(pitch);
    if (!voice) return;
    this.sounding.delete(pitch);
    const now = this.context.currentTime;
    voice.gain.gain.cancelScheduledValues(now);
    voice.gain.gain.setTargetAtTime(0, now, RELEASE / 4);
    voice.tone.stop(now + RELEASE);
  }

  /** A click at a time of the clock; the first one of a bar is higher. */
  click(at, isFirst) {
    const gain = new GainNode(this.context, { gain: 0 });
    const tone = new OscillatorNode(this.context, { type: "square", frequency: isFirst ? 1760 : 1320 });
    tone.connect(gain).connect(this.context.destination);
    gain.gain.setValueAtTime(isFirst ? 0.12 : 0.07, at);
    gain.gain.setTargetAtTime(0, at + 0.005, 0.012);
    tone.start(at);
    tone.stop(at + 0.1);
  }
}
