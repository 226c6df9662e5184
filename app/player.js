// The player: shows the frames that player.py makes, plays their audio and moves the playhead.
// A frame always holds the whole state, so that a frame lost on the way does no harm; its long texts
// (notes, bar lines, tempos) only grow while music is written, and Gradio sends what was added.
// In scope: element, trigger, props, server, watch (Gradio) and what roll.js has at its top.

const part = (name) => element.querySelector(`[data-part="${name}"]`);
const player = part("player");
const sound = part("sound");
const volume = part("volume");
const MOST_NAMES = 8; // in the legend
const roll = new Roll(part("roll"), part("overview"), { onSeek: (beat) => seek(secondsAt(beat)) });

let frame = { phase: "empty", variations: [], job: "" };
let chosen = 0;
let readers = new Map();
let tempos = [[0, 0]];
let total = 0;
let shownJob = null;

/** One reader per text that grows: it keeps what it has read. */
function reader(key, make) {
  if (!readers.has(key)) readers.set(key, make());
  return readers.get(key);
}

const clock = (seconds) => {
  const whole = Math.max(0, Math.floor(seconds));
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
};

function fileUrl(path) {
  const { root = "", api_prefix = "" } = window.gradio_config ?? {};
  return `${root}${api_prefix}/file=${path.split("/").map(encodeURIComponent).join("/")}`;
}

/** Straight line between the two tempo points around a value; `from` and `to` are columns. */
function interpolate(value, from, to) {
  const index = Math.max(1, Math.min(lowerBound(tempos, value, (point) => point[from]), tempos.length - 1));
  const [a, b] = [tempos[index - 1], tempos[index] ?? tempos[index - 1]];
  if (b[from] === a[from]) return a[to];
  return a[to] + ((value - a[from]) * (b[to] - a[to])) / (b[from] - a[from]);
}
const secondsAt = (beat) => Math.max(0, interpolate(beat, 0, 1));
const beatAt = (seconds) => interpolate(seconds, 1, 0);

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
  part("hint").textContent = frame.hint || part("hint").textContent;
  part("alert").hidden = !frame.alert;
  part("alert").textContent = frame.alert || "";
  renderProgress();
  if (!timeline) {
    const bars = [0, 4, 8, 12, 16];
    roll.show({ layers: [], bars, beats: true, joint: 0, end: 16, cut: false, pen: null }, { reset: true });
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
  part("stop").hidden = !["waiting", "composing"].includes(frame.phase);
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
  for (const name of ["midi", "new_midi", "audio"]) {
    const link = part(name);
    link.hidden = !variation?.[name];
    if (!variation?.[name]) continue;
    link.href = fileUrl(variation[name]);
    link.download = variation[name].split("/").pop();
  }
  part("wav").hidden = !variation?.audio;
}

function renderSound(variation, joint) {
  const url = variation?.audio ? fileUrl(variation.audio) : "";
  const ready = Boolean(url);
  for (const name of ["play", "from-start", "from-joint"]) part(name).disabled = !ready;
  part("from-joint").hidden = joint <= 0;
  if (ready && sound.dataset.url !== url) {
    const again = sound.dataset.job === frame.job;
    const bar = joint > 0 ? Math.max(0, joint - 8) : 0; // two bars of four before the new music
    const at = again ? sound.currentTime : secondsAt(bar);
    const playing = again && !sound.paused;
    Object.assign(sound.dataset, { url, job: frame.job });
    sound.src = url;
    sound.currentTime = at;
    if (!again) roll.lookAt(beatAt(at), false);
    if (playing) sound.play();
  } else if (!ready && sound.dataset.url) {
    sound.pause();
    sound.removeAttribute("src");
    sound.load();
    sound.dataset.url = "";
  }
  showTime();
}

function showTime() {
  const ready = Boolean(sound.dataset.url);
  const now = ready ? sound.currentTime : 0;
  const whole = ready && Number.isFinite(sound.duration) ? sound.duration : total;
  part("now").textContent = clock(now);
  part("total").textContent = ` / ${clock(whole)}`;
  const canvas = part("roll");
  canvas.setAttribute("aria-valuemax", Math.round(whole));
  canvas.setAttribute("aria-valuenow", Math.round(now));
  canvas.setAttribute("aria-valuetext", `${clock(now)} of ${clock(whole)}`);
  roll.isPlaying = ready && !sound.paused;
  roll.setPlayhead(ready ? beatAt(now) : null, roll.isPlaying);
}

function seek(seconds) {
  if (!sound.dataset.url) return;
  sound.currentTime = Math.max(0, Math.min(seconds, sound.duration || seconds));
  roll.follow = true;
  showTime();
}

function toggle() {
  if (!sound.dataset.url) return;
  roll.follow = true;
  if (!sound.paused) sound.pause();
  else sound.play().catch((error) => console.warn("cannot play", error));
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

function animate() {
  showTime();
  if (!sound.paused) requestAnimationFrame(animate);
}

sound.addEventListener("play", () => {
  player.classList.add("playing");
  part("play").setAttribute("aria-label", "Pause");
  animate();
});
sound.addEventListener("pause", () => {
  player.classList.remove("playing");
  part("play").setAttribute("aria-label", "Play");
  showTime();
});
for (const name of ["loadedmetadata", "seeked", "ended"]) sound.addEventListener(name, showTime);

volume.addEventListener("input", () => {
  sound.volume = volume.value ** 2;
});
sound.volume = volume.value ** 2;

part("play").addEventListener("click", toggle);
part("from-start").addEventListener("click", () => {
  seek(0);
  roll.lookAt(0, false);
});
part("from-joint").addEventListener("click", () => {
  const { joint } = frame.prompt;
  seek(secondsAt(joint));
  roll.lookAt(joint, false);
});
part("stop").addEventListener("click", () => {
  part("subtitle").textContent = "Stopping …";
  trigger("stop");
});
part("zoom-in").addEventListener("click", () => roll.zoom(1 / 1.5));
part("zoom-out").addEventListener("click", () => roll.zoom(1.5));
part("zoom-fit").addEventListener("click", () => roll.fit());
part("wav").addEventListener("click", async () => {
  const button = part("wav");
  button.disabled = true;
  try {
    const path = await server.wav({ audio: frame.variations[chosen].audio });
    const link = document.createElement("a");
    link.href = fileUrl(path);
    link.download = path.split("/").pop();
    link.click();
  } finally {
    button.disabled = false;
  }
});
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

function accept() {
  if (!props.value) return;
  frame = JSON.parse(JSON.stringify(props.value)); // plain copy of what the framework watches
  if (frame.job !== shownJob) {
    readers = new Map();
    chosen = 0;
  }
  render();
}
watch("value", accept);
accept();
