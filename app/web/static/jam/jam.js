// The mode Jam: a band that follows the chords of the player. This module is loaded when its tab is opened.

import { NO_MIDI, listenToMidi } from "../play/keys.js";
import { Band } from "./band.js";
import { ChordKeys, KEYS } from "./chords.js";

const BANDS = [
  ["", "Full band"],
  ["drums, electric bass (finger), acoustic grand piano", "Piano trio"],
  ["drums, electric bass (finger), electric guitar (clean), rock organ", "Guitar and organ"],
  ["drums, electric bass (finger)", "Drums and bass"],
];
const METRES = ["4/4", "3/4", "2/4", "6/8", "5/4", "7/8", "12/8"];
const SOURCES = [["played", "what I play"], ["chart", "a chart"], ["band", "the band"]];
const FILLS = [["8", "every 8th bar"], ["4", "every 4th bar"], ["0", "never"]];
const GRAINS = [["bar", "the next bar"], ["half", "the half bar"], ["beat", "the next beat"]];
const ENERGIES = [["0.15", "calm"], ["0.5", "usual"], ["0.85", "busy"]];
const STYLE = `
#jam .jam { display: grid; gap: 10px; }
#jam .jam-row { display: flex; flex-wrap: wrap; gap: 8px; align-items: center; }
#jam p { margin: 0; font-size: 13px; line-height: 1.45; color: var(--quiet); }
#jam .jam-say { min-height: 1.45em; color: var(--ink); }
#jam button, #jam select, #jam input { font: inherit; font-size: 13px; color: var(--ink); }
#jam .jam-row button { min-height: 38px; padding: 4px 18px; border: 1px solid var(--line-strong); border-radius: 10px; font-weight: 600; background: var(--card); cursor: pointer; }
#jam .jam-row .jam-go { border-color: transparent; background: var(--accent); color: var(--on-accent); }
#jam .jam-count { margin-left: auto; font-size: 13px; font-variant-numeric: tabular-nums; color: var(--quiet); }
#jam .jam-keys { display: grid; grid-template-columns: repeat(7, 1fr); gap: 4px; touch-action: none; user-select: none; -webkit-user-select: none; }
#jam .jam-keys button { display: grid; min-width: 0; min-height: 46px; padding: 3px 0; place-content: center; justify-items: center; border: 1px solid var(--line-strong); border-radius: 8px; background: var(--card); cursor: pointer; touch-action: none; }
#jam .jam-keys b { font: 600 12.5px/1.1 var(--font); letter-spacing: -0.02em; text-align: center; }
#jam .jam-keys small { font-size: 10.5px; }
#jam .jam-keys button:nth-child(-n + 7) small { display: block; }
#jam .jam-keys kbd { font: 11px/1.2 var(--font); color: var(--quiet); }
#jam .jam-keys [aria-pressed="true"] { border-color: var(--accent); background: var(--accent); color: var(--on-accent); }
#jam .jam-keys [aria-pressed="true"] kbd { color: inherit; }
#jam .jam-fields { display: grid; grid-template-columns: 1fr 1fr; gap: 8px 10px; margin: 0; padding: 0; border: 0; min-width: 0; }
#jam label { display: grid; gap: 3px; min-width: 0; font-size: 13px; color: var(--quiet); }
#jam select, #jam input:not([type="checkbox"]) { width: 100%; min-width: 0; height: 34px; padding: 0 8px; border: 1px solid var(--line-strong); border-radius: 8px; background: var(--paper); }
#jam select { appearance: auto; padding: 0 2px; }
#jam .jam-wide { grid-column: 1 / -1; }
#jam .jam-check { display: flex; gap: 8px; align-items: center; }
#jam input[type="checkbox"] { appearance: auto; width: 16px; height: 16px; accent-color: var(--accent); background-image: none; }
#desk:has(#jam-tab-button[aria-selected="true"]) #over { display: none; }
@media (max-width: 860px) { #controls #jam-tab { order: 1; } }
#jam [hidden] { display: none; }
#jam :disabled { opacity: 0.55; cursor: default; }
@media (forced-colors: active) { #jam .jam-keys [aria-pressed="true"] { outline: 3px solid Highlight; } }`;

const options = (pairs) => pairs.map(([value, text]) => `<option value="${value}">${text}</option>`).join("");
const names = (all) => options(all.map((one) => [one, one]));
const html = (styles) => `<style>${STYLE}</style><div class="jam">
<p>Play chords, and a band follows. Each letter on a chord is its key on your keyboard.</p>
<div class="jam-row"><button type="button" class="jam-go" data-jam="go">Start</button><button type="button" data-jam="end" title="A cadence in the next bar; press again to stop at once" hidden>End</button><span class="jam-count" data-jam="count" title="Bars that are written ahead, and those that came late: another one was played in their place"></span></div>
<p class="jam-say" role="status" data-jam="say"></p>
<div class="jam-keys" role="group" aria-label="Chords of the key" data-jam="keys"></div>
<div class="jam-row"><label style="grid-auto-flow: column; align-items: center">Key <select data-jam="key">${names(KEYS)}</select></label><button type="button" data-jam="midi" title="Listen to the MIDI keyboards that are connected">MIDI keyboard</button></div>
<div class="jam-fields">
<label>Follow from <select data-jam="grain" title="Bars are written for the chords before them; what sounds already is moved to a new chord">${options(GRAINS)}</select></label>
<label>Energy <select data-jam="energy" title="How much the band plays">${options(ENERGIES)}</select></label>
</div>
<fieldset class="jam-fields" data-jam="begin">
<label>Chords <select data-jam="source" title="Who chooses the chords">${options(SOURCES)}</select></label>
<label>Tempo <input type="number" data-jam="tempo" min="40" max="240" value="100" title="Quarter notes in a minute"></label>
<label class="jam-wide" hidden>Chart, which is repeated <input data-jam="chart" value="Am7 | D7 | Gmaj7 | %" maxlength="1000"></label>
<label>Metre <select data-jam="metre">${names(METRES)}</select></label>
<label>Fills <select data-jam="fill">${options(FILLS)}</select></label>
<label>Band <select data-jam="band">${options(BANDS)}</select></label>
<label ${styles.length ? "" : "hidden"}>Style <select data-jam="style"><option value="">any</option>${names(styles)}</select></label>
<label class="jam-check jam-wide" title="You play four bars with bass and drums; the band answers with your chords in the next four"><input type="checkbox" data-jam="trade"> Trade fours</label>
</fieldset></div>`;

class Mode {
  band = null;

  constructor({ element, trigger, root }, styles, player) {
    Object.assign(this, { trigger, root, player });
    element.innerHTML = html(styles);
    const part = (this.part = (name) => element.querySelector(`[data-jam="${name}"]`));
    this.player.sound.synth.load();
    this.keys = new ChordKeys(part("keys"), {
      onPress: ({ symbol, pitches }) => {
        for (const pitch of pitches) this.sound(pitch, 70);
        this.band?.hear({ chords: symbol });
        this.keys.mark(symbol);
      },
      isPlaying: () => Boolean(this.band),
      onRelease: ({ pitches }) => pitches.forEach((pitch) => this.sound(pitch, 0)),
    });
    const setKey = () => this.keys.setKey(part("key").value);
    setKey();
    part("energy").value = "0.5";
    part("key").addEventListener("change", setKey);
    const showChart = () => (part("chart").parentElement.hidden = part("source").value !== "chart");
    part("source").addEventListener("change", showChart);
    for (const name of ["grain", "energy"]) part(name).addEventListener("change", () => this.tune());
    part("go").addEventListener("click", () => this.start());
    part("end").addEventListener("click", () => {
      this.band.end();
      if (this.band && !this.band.isOver) this.say("The band comes to an end.");
    });
    const heard = {
      onPress: (pitch, velocity) => {
        this.sound(pitch, velocity);
        this.band?.press(pitch);
      },
      onRelease: (pitch) => {
        this.sound(pitch, 0);
        this.band?.release(pitch);
      },
      onPedal: () => {},
      onChange: (text) => this.say(text),
    };
    part("midi").addEventListener("click", async () => this.say(await listenToMidi(heard, (name) => name === this.player.sound.out?.port?.name)));
    if (!navigator.requestMIDIAccess) {
      part("midi").hidden = true;
      this.say(`${NO_MIDI} The keys A to J and the buttons below work.`);
    }
  }

  sound(pitch, velocity) {
    this.player.sound.key({ pitch, velocity, program: 0 });
  }

  say(text) {
    if (this.part("say").textContent !== text) this.part("say").textContent = text;
  }

  tune() {
    if (this.band) Object.assign(this.band, { grain: this.part("grain").value, energy: Number(this.part("energy").value) });
  }

  async start() {
    const { part, player } = this;
    const value = (name) => part(name).value;
    if (!part("tempo").validity.valid || !value("tempo")) {
      this.say("The tempo is not a whole number from 40 to 240.");
      return part("tempo").focus();
    }
    const { synth } = player.sound;
    synth.load();
    synth.wake(); // which browsers allow within a click
    this.show(true);
    this.say("The instruments are loaded …");
    while (synth.state === "loading") await new Promise((resolve) => setTimeout(resolve, 50));
    if (synth.state !== "ready") {
      this.say(`${synth.why}. A jam needs it.`);
      return this.show(false);
    }
    const source = value("source");
    const settings = { source, seed: Math.floor(Math.random() * 2 ** 31), tempo: Number(value("tempo")), fill: Number(value("fill")), trade: part("trade").checked };
    for (const name of ["metre", "band", "style"]) settings[name] = value(name);
    if (source === "chart") settings.chart = value("chart");
    else if (source === "band") settings.chart = "?";
    this.band = new Band(player, this.root, settings, {
      onSay: (text) => this.say(text),
      onChange: () => this.count(),
      onOver: (text) => this.over(text),
    });
    this.tune();
    this.band.begin();
  }

  show(isPlaying) {
    this.part("go").hidden = isPlaying;
    this.part("end").hidden = !isPlaying;
    this.part("begin").hidden = isPlaying;
    this.part(isPlaying ? "end" : "go").focus({ preventScroll: true });
    this.part("keys").scrollIntoView({ block: "nearest" });
  }

  /** The small counts: bars ahead and late, and the chord. */
  count() {
    const { chord, bars, current, late, last, settings } = this.band;
    if (current < 0) return;
    const ahead = bars.length - 1 - current;
    const turn = settings.trade ? (current % 8 < 4 ? "you play" : "the band answers") : "";
    const text = [`bar ${current + 1}`, turn, last === null ? `${ahead} ahead` : "", late ? `${late} late` : ""].filter(Boolean).join(" · ");
    if (this.part("count").textContent !== text) this.part("count").textContent = text;
    if (current === 0 && ahead < 2 && !this.band.isEnding) this.say("");
    this.keys.mark(chord);
  }

  over(text) {
    const { id, current, last } = this.band;
    this.band = null;
    this.keys.mark(null);
    this.part("count").textContent = "";
    this.show(false);
    this.say(text || (current < 0 ? "" : "What was played is below the player, with its MIDI file."));
    if (id && current >= 0) this.trigger("ended", { jam: id, bars: (last ?? current) + 1 });
  }
}

export function start(page, styles) {
  let player = null; // the tab may be opened before it is there
  document.dispatchEvent(new CustomEvent("lend-player", { detail: (lent) => (player = lent) }));
  if (player) new Mode(page, styles, player);
  else setTimeout(start, 50, page, styles);
}
