// The check of the sound: the listener sets the volume, and counts soft tones.
import { Clip } from "./clip.js";
import { make, show } from "./dom.js";
import { loadClip } from "./server.js";

const LEAST = 2;
const MOST = 5;
const HERTZ = 660;
const LEVEL = 0.03; // of full scale: softer than the music
const TONE = 0.25; // seconds, as the pause after it

let context = null;

async function playTones(count) {
  context ??= new AudioContext();
  await context.resume();
  const gain = context.createGain();
  gain.gain.value = 0;
  gain.connect(context.destination);
  const tone = context.createOscillator();
  tone.frequency.value = HERTZ;
  tone.connect(gain);
  const begin = context.currentTime + 0.3;
  for (let at = 0; at < count; at += 1) {
    const start = begin + 2 * at * TONE;
    gain.gain.setTargetAtTime(LEVEL, start, 0.01);
    gain.gain.setTargetAtTime(0, start + TONE, 0.01);
  }
  tone.start();
  tone.stop(begin + 2 * count * TONE);
  await new Promise((resolve) => tone.addEventListener("ended", resolve));
}

// The promise is kept when the listener has heard the tones.
export function checkLevel(state) {
  return new Promise((done) => {
    const [facts] = state.clips;
    const clip = new Clip({ label: "Music", seconds: facts.seconds, newSeconds: 0, needed: 0,
      load: () => loadClip(state.position, "first") });
    let count = 0;
    const said = make("p", { className: "hint", role: "status" });
    const buttons = [];
    for (let number = LEAST - 1; number <= MOST + 1; number += 1) {
      buttons.push(make("button", { type: "button", disabled: true, onclick: () => answer(number) }, String(number)));
    }
    const play = make("button", { type: "button", className: "second", onclick: start }, "Play the tones");

    async function start() {
      clip.pause();
      count = LEAST + Math.floor(Math.random() * (MOST - LEAST + 1));
      said.textContent = "Listen …";
      play.disabled = true;
      for (const button of buttons) button.disabled = true;
      await playTones(count);
      said.textContent = "How many tones did you hear?";
      for (const button of buttons) button.disabled = false;
      play.disabled = false;
      play.textContent = "Play them again";
    }

    function answer(number) {
      if (number !== count) {
        said.textContent = "That was another number. Find a quieter place or turn up the volume a little, and play them again.";
        for (const button of buttons) button.disabled = true;
        return;
      }
      clip.close();
      done();
    }

    show(
      make("h2", {}, "Your sound"),
      make("div", { className: "card steps" },
        make("p", {}, make("b", {}, "1. "), "Use headphones if you can, in a quiet place. Play the music and set a comfortable volume on your device. Please do not change it afterwards."),
        clip.element,
        make("p", {}, make("b", {}, "2. "), "Now count some soft tones."),
        play,
        make("div", { className: "counts", role: "group", "aria-label": "Number of tones" }, ...buttons),
        said));
  });
}
