// The player: shows the frames that player.py makes, plays their audio and moves the playhead.
// A frame always holds the whole state, so that a frame lost on the way does no harm; its long texts
// (notes, bar lines, tempos) only grow while music is written, and Gradio sends what was added.
// In scope: trigger, props, watch (Gradio) and what the roll's files and player_sound.js have at their top.

const MOST_NAMES = 8; // in the legend
const roll = new Roll(part("roll"), part("overview"), { onSeek: (beat) => seek(secondsAt(beat)) });

let frame = { phase: "empty", variations: [], job: "" };
let chosen = 0;
let readers = new Map();
let tempos = [[0, 0]];
let total = 0;
let shownJob = null;
let result = null; // the last frame with files

/** One reader per text that grows: it keeps what it has read. */
function reader(key, make) {
  if (!readers.has(key)) readers.set(key, make());
  return readers.get(key);
}

function layersOf(tracks, name, isNew) {
  return tracks.map((track, index) => {
    const { hue, drums } = track;
    const notes = reader(`${name}/${index}/${drums}`, noteReader(drums))(track.notes);
    const longest = notes.reduce((most, note) => Math.max(most, note.off - note.on), 1);
    return { notes, longest, hue, drums, isNew, name: track.name };
  });
}

function render() {
  const variation = frame.variations[chosen] ?? frame.variations[0];
  const timeline = variation?.timeline ?? frame.timeline;
  const composing = frame.phase === "composing";
  player.dataset.phase = frame.phase;
  part("title").textContent = frame.title || "No music yet";
  part("empty").hidden = frame.phase !== "empty";
  part("back").hidden = !result || !["empty", "prompt"].includes(frame.phase);
  renderAlert();
  renderProgress();
  if (!timeline) {
    const bars = [0, 4, 8, 12, 16];
    roll.show({ layers: [], bars, beats: true, joint: 0, end: 16, cut: false, pen: null }, { reset: true });
    [tempos, total, shownJob] = [[[0, 0]], 0, frame.job];
    renderLegend([], 0);
    renderFoot();
    renderSound(undefined, 0);
    return;
  }
  const bars = reader(`bars/${chosen}`, () => rowReader(([unit]) => unit / UNITS_PER_BEAT))(timeline.bars);
  tempos = reader(`tempos/${chosen}`, () => rowReader(([unit, ms]) => [unit / UNITS_PER_BEAT, ms / 1000]))(
    timeline.tempos,
  );
  total = tempos.length ? tempos[tempos.length - 1][1] : 0;
  const layers = [
    ...layersOf(frame.prompt?.tracks ?? [], "prompt", false),
    ...(variation ? layersOf(variation.tracks, `new/${chosen}`, true) : []),
  ];
  const joint = frame.prompt?.joint ?? 0;
  const newest = soundingLayers(layers).map((layer) => (layer.isNew ? layer.notes.at(-1).on : 0));
  const pen = composing ? Math.max(joint, ...newest) : null;
  const started = shownJob !== frame.job;
  roll.show(
    { layers, bars, beats: timeline.beats, joint, end: timeline.end, cut: frame.phase !== "prompt", pen, focus: joint },
    { reset: started },
  );
  if (started) {
    shownJob = frame.job;
    if (composing || frame.phase === "waiting") bringIntoSight();
  }
  renderLegend(soundingLayers(layers), joint);
  renderFoot(variation);
  renderSound(variation, joint);
}

function renderProgress() {
  const busy = ["waiting", "composing", "rendering"].includes(frame.phase);
  const bar = part("bar");
  bar.hidden = !busy;
  part("stop").hidden = !busy;
  part("subtitle").textContent = (busy && frame.line) || frame.subtitle || "";
  const percent = Math.round(100 * (frame.progress ?? 0));
  bar.classList.toggle("unknown", frame.phase !== "composing");
  bar.firstElementChild.style.width = `${percent}%`;
  bar.setAttribute("aria-valuenow", percent);
  if (frame.status && part("status").textContent !== frame.status) part("status").textContent = frame.status;
}

/** Each instrument once, in the colours that it has before and after the joint, and what is shaded. */
function renderLegend(layers, joint) {
  const solo = isSolo(layers);
  const isContinued = solo && layers.some((layer) => !layer.isNew);
  const entries = new Map();
  for (const layer of layers) {
    const name = layer.isNew && isContinued ? "New music" : layer.name;
    const key = `${layer.hue} ${name}`;
    if (!entries.has(key)) entries.set(key, { name, colours: new Set() });
    entries.get(key).colours.add(`var(--roll-${colourName(layer, solo)})`);
  }
  const items = [...entries.values()].slice(0, MOST_NAMES).map(({ name, colours }) => {
    const [before, after = before] = colours;
    const item = legendItem(name, "instrument");
    item.style.setProperty("--swatch", `linear-gradient(90deg, ${before} 50%, ${after} 50%)`);
    return item;
  });
  const left = entries.size - items.length;
  if (left) items.push(legendItem(`and ${left} more`, "more"));
  if (joint > 0 && !solo) items.push(legendItem("Your file", "shaded"));
  part("legend").replaceChildren(...items);
}

function legendItem(name, kind) {
  const item = document.createElement("li");
  item.textContent = item.title = name;
  item.className = kind;
  return item;
}

function renderFoot(variation) {
  const count = frame.variations.length;
  const chips = part("chips");
  chips.hidden = count < 2;
  if (chips.childElementCount !== count) {
    chips.replaceChildren(
      ...Array.from({ length: count }, (_, index) => {
        const chip = document.createElement("button");
        chip.type = "button";
        chip.setAttribute("role", "radio");
        chip.textContent = String(index + 1);
        chip.title = `Variation ${index + 1} (key ${index + 1})`;
        chip.addEventListener("click", () => choose(index));
        return chip;
      }),
    );
  }
  [...chips.children].forEach((chip, index) => {
    chip.setAttribute("aria-checked", index === chosen);
    chip.tabIndex = index === chosen ? 0 : -1;
  });
  part("foot").hidden = !variation?.midi;
  part("settings").textContent = variation?.settings || "";
  for (const name of FILES) {
    const link = part(name);
    link.hidden = !variation?.[name];
    if (!variation?.[name]) continue;
    link.href = fileUrl(variation[name]);
    link.download = variation[name].split("/").pop();
  }
  part("wav").hidden = !variation?.audio;
}

function choose(index) {
  if (index >= frame.variations.length || index === chosen) return;
  chosen = index;
  render();
}

function bringIntoSight() {
  const top = player.getBoundingClientRect().top;
  if (top < 0 || part("roll").getBoundingClientRect().bottom > window.innerHeight) {
    const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    player.scrollIntoView({ behavior: still ? "auto" : "smooth", block: "start" });
  }
}

part("back").addEventListener("click", () => show(result));
part("stop").addEventListener("click", () => {
  part("subtitle").textContent = "Stopping …";
  trigger("stop");
});
part("zoom-in").addEventListener("click", () => roll.zoom(1 / 1.5));
part("zoom-out").addEventListener("click", () => roll.zoom(1.5));
part("zoom-fit").addEventListener("click", () => roll.fit());
part("chips").addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  choose((chosen + step + frame.variations.length) % frame.variations.length);
  part("chips").children[chosen].focus();
});
part("roll").addEventListener("keydown", (event) => {
  const beat = beatAt(sound.currentTime);
  const bars = roll.bars;
  const index = lowerBound(bars, beat + 0.01, (bar) => bar) - 1;
  if (event.key === "ArrowRight") seek(secondsAt(bars[index + 1] ?? beat));
  else if (event.key === "ArrowLeft") seek(secondsAt(bars[beat - bars[index] > 1 ? index : index - 1] ?? 0));
  else if (event.key === "Home") seek(0);
  else if (event.key === "End") seek(total);
  else if (event.key === "+") roll.zoom(1 / 1.5);
  else if (event.key === "-") roll.zoom(1.5);
  else return;
  event.preventDefault();
});

const onKey = (event) => {
  if (!element.isConnected) {
    document.removeEventListener("keydown", onKey);
    return;
  }
  const busy = event.target.closest?.("input, textarea, select, button, a, [role=tab], [role=radio], [contenteditable]");
  if (busy || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === " ") {
    event.preventDefault();
    toggle();
  } else if (/^[1-4]$/.test(event.key)) choose(Number(event.key) - 1);
};
document.addEventListener("keydown", onKey);

function show(next) {
  frame = next;
  if (frame.variations.some((variation) => variation.midi)) result = frame;
  if (frame.job !== shownJob) {
    readers = new Map();
    chosen = 0;
  }
  render();
}

function accept() {
  if (props.value) show(JSON.parse(JSON.stringify(props.value))); // plain copy of what the framework watches
}
watch("value", accept);
accept();
