// The player: shows the frames that player.py makes, and tells the page what the user wants.
// A frame always holds the whole state, so that a frame lost on the way does no harm; its long texts
// (notes, bar lines, tempos) only grow while music is written, and Gradio sends what was added.
// In scope: trigger, props, watch (Gradio) and what the files before this one have at their top.

const BUSY = ["waiting", "composing", "rendering"];
const BLANK_BARS = [0, 4, 8, 12, 16];

let frame = { phase: "empty", variations: [], job: "" };
let chosen = 0;
let readers = new Map();
let tempos = [[0, 0]];
let total = 0;
let shownJob = null;
let shownFile = ""; // the prompt's tracks, by which a piece is known again
let isNewPiece = true; // nothing of this piece was heard yet
let isRecounted = false; // its bars are others now
let isListOpen = false; // the table of tracks, where it can be opened
let isByKeys = false; // whether the last thing done was done with the keyboard

const region = new PromptRegion(part("stage"), null, { onChange: (bars) => trigger("region", bars) });
const roll = new Roll(part("roll"), part("overview"), {
  onSeek: (beat) => seek(secondsAt(beat)),
  onDraw: () => region.place(),
});
region.roll = roll;
const tracks = new TrackList(part("tracks"), { onMix, onChoice: (ids) => trigger("tracks", ids) });
const compare = new Variations(part("chips"), { onChoice: (index) => choose(index) });

/** What is heard was changed: by the user, who may try again what has failed, or back to what sounded. */
function onMix({ isRestored }) {
  if (!isRestored) failed = "";
  render();
}

/** One reader per text that grows: it keeps what it has read. */
function reader(key, make) {
  if (!readers.has(key)) readers.set(key, make());
  return readers.get(key);
}

function layersOf(all, name, isNew) {
  return all.map((track, index) => {
    const { hue, drums, id = hue } = track;
    const notes = reader(`${name}/${index}/${drums}`, noteReader(drums))(track.notes);
    const longest = notes.reduce((most, note) => Math.max(most, note.off - note.on), 1);
    return { ...track, id, notes, longest, isNew, isQuiet: tracks.isQuiet(id) };
  });
}

const isBusy = () => frame.busy ?? BUSY.includes(frame.phase);

function render() {
  const variation = frame.variations[chosen] ?? frame.variations[0];
  const timeline = variation?.timeline ?? frame.timeline;
  player.dataset.phase = frame.phase;
  player.classList.toggle("example", Boolean(frame.example));
  part("title").textContent = part("title").title = frame.title || "No music yet";
  part("empty").hidden = frame.phase !== "empty" || Boolean(frame.example);
  part("like-this").hidden = !frame.example;
  renderAlert();
  renderProgress();
  if (timeline) renderMusic(variation, timeline);
  else renderBlank();
  renderActions(variation);
}

function renderBlank() {
  roll.show({ layers: [], bars: BLANK_BARS, beats: true, first: 0, joint: 0, end: 16, cut: false, pen: null }, { reset: true });
  region.show({ bars: BLANK_BARS, first: 0, joint: 0, end: 16, isOpen: false });
  [tempos, total, shownJob] = [[[0, 0]], 0, frame.job];
  renderTracks([]);
  compare.show([], 0);
  renderSound(0);
}

function renderMusic(variation, timeline) {
  const bars = reader(`bars/${chosen}`, () => rowReader(([unit]) => unit / UNITS_PER_BEAT))(timeline.bars);
  tempos = reader(`tempos/${chosen}`, () => rowReader(([unit, ms]) => [unit / UNITS_PER_BEAT, ms / 1000]))(timeline.tempos);
  total = tempos.length ? tempos[tempos.length - 1][1] : 0;
  const before = layersOf(frame.prompt?.tracks ?? [], "prompt", false);
  const all = frame.variations.map((one, index) => layersOf(one.tracks, `new/${index}`, true));
  const layers = [...before, ...(variation ? all[Math.max(0, frame.variations.indexOf(variation))] : [])];
  const { joint = 0, first = 0 } = frame.prompt ?? {};
  const sounding = soundingLayers(layers);
  const newest = sounding.map((layer) => (layer.isNew ? layer.notes.at(-1).on : 0));
  const pen = frame.phase === "composing" ? Math.max(joint, ...newest) : null;
  const cut = frame.phase !== "prompt";
  const started = shownJob !== frame.job;
  roll.show({ layers, bars, beats: timeline.beats, first, joint, end: timeline.end, cut, pen, focus: joint }, { reset: started || isRecounted });
  const lastOnset = Math.max(0, ...sounding.map((layer) => layer.notes.at(-1).on));
  const canChange = frame.prompt?.first !== undefined && !cut && !isBusy();
  region.show({ bars, first, joint, end: lastOnset, isOpen: canChange });
  if (started) {
    shownJob = frame.job;
    isNewPiece = true;
    if (pen !== null || frame.phase === "waiting") bringIntoSight();
  }
  renderTracks(sounding);
  compare.show(
    frame.variations.map((one, index) => ({
      layers: soundingLayers(all[index]),
      from: joint,
      to: (one.timeline ?? timeline).end,
      facts: one.facts ?? factsOf(all[index]),
      isComing: one.sound === "making",
    })),
    chosen,
  );
  renderSound(joint);
}

function factsOf(layers) {
  const notes = layers.reduce((sum, layer) => sum + layer.notes.length, 0);
  return notes === 1 ? "1 note" : `${notes} notes`;
}

function renderTracks(layers) {
  const canChoose = layers.filter((layer) => layer.heard !== undefined || layer.played !== undefined).length > 1;
  const canMix = canMuteNow();
  part("open-tracks").hidden = !canChoose || Boolean(frame.table);
  const isOpen = Boolean(frame.table) || isListOpen;
  part("hint").hidden = !canChoose || !isOpen;
  part("hint-mix").hidden = !canMix;
  part("open-tracks").setAttribute("aria-expanded", isOpen);
  player.classList.toggle("with-table", canChoose && isOpen);
  tracks.show(layers, { canMix, canChoose, isOpen, isBusy: isBusy(), isSolo: isSolo(layers) });
}

/** Whether what is shown has, or will have, sound that is mixed of its tracks. */
function canMuteNow() {
  return canMix() && [frame.prompt, ...frame.variations].some((one) => one?.sound && one.sound !== "none");
}

function renderProgress() {
  const busy = isBusy();
  const bar = part("bar");
  bar.hidden = !busy;
  part("stop").hidden = !busy;
  part("discard").hidden = !frame.can_discard;
  part("subtitle").textContent = (busy && frame.line) || frame.subtitle || "";
  const percent = Math.round(100 * (frame.progress ?? 0));
  const isKnown = frame.phase === "composing" || percent > 0;
  bar.classList.toggle("unknown", !isKnown);
  bar.firstElementChild.style.width = `${percent}%`;
  if (isKnown) bar.setAttribute("aria-valuenow", percent);
  else bar.removeAttribute("aria-valuenow");
  if (frame.status && part("status").textContent !== frame.status) part("status").textContent = frame.status;
}

/** What can be done with the music that is shown. */
function renderActions(variation) {
  const files = new Set(kindsOf(variation));
  const isDone = Boolean(files.size) && !isBusy();
  renderFiles(variation);
  part("continue-this").hidden = !isDone;
  part("undo").hidden = !frame.can_undo;
  part("undo").disabled = isBusy();
  part("replay").hidden = !isDone || !files.has("replay");
  part("other-prompt").hidden = !isDone || frame.prompt?.first === undefined;
  part("settings").textContent = variation?.settings || "";
  part("actions").hidden = Boolean(frame.example) || [...part("actions").children].every((child) => child.hidden || !child.textContent);
}

function choose(index) {
  if (index >= frame.variations.length || index === chosen) return;
  chosen = index;
  failed = ""; // what has failed may be tried again
  render();
}

function bringIntoSight() {
  const top = player.getBoundingClientRect().top;
  if (top < 0 || part("roll").getBoundingClientRect().bottom > window.innerHeight) {
    const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    player.scrollIntoView({ behavior: still ? "auto" : "smooth", block: "start" });
  }
}

const variationNow = () => ({ variation: chosen });
const clicks = {
  stop: () => {
    part("subtitle").textContent = "Stopping …";
    trigger("stop");
  },
  discard: () => trigger("discard"),
  undo: () => trigger("undo"),
  "continue-this": () => trigger("continue_this", variationNow()),
  replay: () => trigger("replay", variationNow()),
  "other-prompt": () => trigger("region", region.of(roll.bars, frame.prompt)),
  "zoom-in": () => roll.zoom(1 / 1.5),
  "zoom-out": () => roll.zoom(1.5),
  "zoom-fit": () => roll.fit(),
  "open-tracks": () => {
    isListOpen = !isListOpen;
    render();
  },
};
for (const [name, call] of Object.entries(clicks)) part(name).addEventListener("click", call);

part("roll").addEventListener("keydown", (event) => {
  const beat = beatAt(position());
  const bars = roll.bars;
  const index = lowerBound(bars, beat + 0.01, (bar) => bar) - 1;
  if (event.key === "ArrowRight") seek(secondsAt(bars[index + 1] ?? beat));
  else if (event.key === "ArrowLeft") seek(secondsAt(bars[beat - bars[index] > 1 ? index : index - 1] ?? 0));
  else if (event.key === "Home") seek(0);
  else if (event.key === "End") seek(total);
  else if (event.key === "+" || event.key === "=") roll.zoom(1 / 1.5);
  else if (event.key === "-") roll.zoom(1.5);
  else if (event.key === "0") roll.fit();
  else return;
  roll.lookAt(beatAt(position()), false);
  event.preventDefault();
});

const TEXTS =
  "textarea, select, [contenteditable], [role=textbox], input:not([type=range], [type=checkbox], [type=radio], [type=button], [type=file])";
const PRESSED_BY_SPACE = "button, summary, a, [role=tab], [role=radio], input[type=checkbox], input[type=radio]";

/** Space plays and pauses, 1 to 4 choose: wherever the focus is, but in what takes these keys itself. */
function onKey(event) {
  if (["Tab", "ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"].includes(event.key)) isByKeys = true;
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.(TEXTS)) return;
  if (!player.getClientRects().length) return; // another tab is before it
  if (event.key === " ") {
    if (isByKeys && event.target.closest?.(PRESSED_BY_SPACE)) return;
    event.preventDefault();
    event.stopPropagation();
    if (event.type === "keydown" && !event.repeat) toggle();
  } else if (event.type === "keydown" && /^[1-4]$/.test(event.key)) choose(Number(event.key) - 1);
}

const events = new AbortController();
const listen = (name, call) =>
  document.addEventListener(name, (event) => (element.isConnected ? call(event) : events.abort()), { capture: true, signal: events.signal });
listen("keydown", onKey);
listen("keyup", (event) => event.key === " " && onKey(event));
listen("pointerdown", (event) => {
  isByKeys = false;
  if (!part("downloads").contains(event.target)) openMenu(false);
});

function show(next) {
  const file = JSON.stringify([next.title, (next.prompt?.tracks ?? []).map((track) => [track.name, track.notes])]);
  const isSameFile = file === shownFile;
  const isMoved = isSameFile && next.phase === "prompt" && frame.phase === "prompt"; // another region of it
  if (!isSameFile) {
    tracks.clear();
    drop();
    cursor = 0;
  }
  isRecounted = isMoved && next.timeline?.bars !== frame.timeline?.bars;
  if (isMoved) shownJob = next.job;
  else if (next.job !== shownJob) {
    readers = new Map();
    chosen = 0;
  }
  [frame, shownFile] = [next, file];
  render();
  isRecounted = false;
}

function accept() {
  if (props.value) show(JSON.parse(JSON.stringify(props.value))); // plain copy of what the framework watches
}
sound.volume = level();
watch("value", accept);
accept();
