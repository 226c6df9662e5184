// What is heard: a mix of the tracks that the server makes, or a file that a frame names; position,
// playing, and going over from one sound to another at the same place.
// In scope: element, server (Gradio), and the state of player.js, which comes behind this file.

const part = (name) => element.querySelector(`[data-part="${name}"]`);
const player = part("player");
const volume = part("volume");
const FADE_MS = 60; // over which one sound goes over into another
const LEAD_SECONDS = 0.2; // how far ahead the next one is made ready while the other plays
const START_SECONDS = 0.012; // that an audio element takes to begin
const PATIENCE_MS = 60_000; // a busy machine answers late
const NO_SOUND =
  "The sound cannot be played: its file was removed, or the program has ended; make the music again with the settings below.";

let sound = part("sound"); // the one that is heard
let spare = part("spare"); // the one that comes next
let cursor = 0; // position in seconds while there is no sound
let tuning = 0; // number of the last change of sound
let isMaking = ""; // key of the sound that is on its way
let failed = ""; // key of the one that did not come

/** Says what went wrong, until the next frame comes. */
function complain(text) {
  frame.alert = text;
  renderAlert();
}

function renderAlert() {
  part("alert").hidden = !frame.alert;
  part("alert").textContent = frame.alert || "";
}

const clock = (seconds) => {
  const whole = Math.max(0, Math.floor(seconds));
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
};

const wait = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

function fileUrl(path) {
  const { root = "", api_prefix = "" } = window.gradio_config ?? {};
  return `${root}${api_prefix}/file=${path.split("/").map(encodeURIComponent).join("/")}`;
}

/** A path from the server, or an error with its sentence. */
async function ask(name, request) {
  const answer = await server[name](request);
  if (!answer?.path) throw Object.assign(new Error(answer?.error || NO_SOUND), { isTold: true });
  return answer.path;
}

const canMix = () => typeof server?.mix === "function";

/** Straight line between the two tempo points around a value; `from` and `to` are columns. */
function interpolate(value, from, to) {
  const index = Math.max(1, Math.min(lowerBound(tempos, value, (point) => point[from]), tempos.length - 1));
  const [a, b] = [tempos[index - 1], tempos[index] ?? tempos[index - 1]];
  if (b[from] === a[from]) return a[to];
  return a[to] + ((value - a[from]) * (b[to] - a[to])) / (b[from] - a[from]);
}
const secondsAt = (beat) => Math.max(0, interpolate(beat, 0, 1));
const beatAt = (seconds) => interpolate(seconds, 1, 0);

const isLoaded = () => Boolean(sound.dataset.key);
const position = () => (isLoaded() ? sound.currentTime : cursor);

/** The sound that belongs to what is shown: {key, and path or request}; null where there is none. */
function wantedSound() {
  const variation = frame.variations[chosen];
  const without = tracks.silent();
  if (variation?.audio && !without.length) return { key: variation.audio, path: variation.audio };
  if (!canMix() || !frame.job) return null;
  const index = variation?.sound === "ready" ? chosen : -1;
  if (index < 0 && (frame.prompt?.sound !== "ready" || frame.phase === "done")) return null;
  return { key: `${frame.job}/${index}/${without}`, request: { job: frame.job, variation: index, without } };
}

const isPending = () => Boolean(isMaking) || (frame.variations[chosen]?.sound ?? frame.prompt?.sound) === "making";

/** Brings the sound of what is shown; that of an upload only when it is asked for. */
function renderSound(joint) {
  const wanted = wantedSound();
  const isNew = sound.dataset.job !== frame.job;
  part("from-joint").hidden = joint <= 0;
  for (const name of ["play", "from-start", "from-joint"]) part(name).disabled = !wanted;
  if (!wanted) drop();
  else if (wanted.key === sound.dataset.key) calm();
  else if (wanted.key !== isMaking && wanted.key !== failed) {
    const isPrompt = wanted.request?.variation === -1;
    if (isPrompt && (!isLoaded() || isNew)) drop();
    else tune(wanted, !sound.paused);
  }
  showTime();
}

/** Where a new sound begins: at the place of the last one, or two bars of four before the new music. */
function firstPosition() {
  if (!isNewPiece) return position();
  const joint = frame.prompt?.joint ?? 0;
  return joint > 0 && frame.variations.length ? secondsAt(Math.max(0, joint - 8)) : 0;
}

/** What is on its way is not wanted any more. */
function calm() {
  if (isMaking) tuning += 1;
  isMaking = "";
}

function drop() {
  calm();
  if (!isLoaded()) return;
  cursor = sound.currentTime;
  for (const deck of [sound, spare]) {
    Object.assign(deck.dataset, { key: "", job: "" });
    deck.pause();
    deck.removeAttribute("src");
    deck.load();
  }
}

/** Goes over to another sound, at the same place and without a gap; `plays`: and plays it. */
async function tune(wanted, plays) {
  tuning += 1;
  const turn = tuning;
  const isLate = () => turn !== tuning;
  isMaking = wanted.key;
  showTime();
  try {
    const path = wanted.path ?? (await ask("mix", wanted.request));
    if (isLate()) return;
    const at = firstPosition();
    await load(spare, fileUrl(path), at);
    if (isLate()) return;
    Object.assign(spare.dataset, { key: wanted.key, job: frame.job });
    tracks.confirm();
    if (!sound.paused && !isNewPiece) await meet(isLate);
    else spare.currentTime = isNewPiece ? at : position();
    if (isLate()) return;
    exchange(plays);
    if (isNewPiece) roll.lookAt(beatAt(at), false);
    isNewPiece = false;
  } catch (error) {
    if (isLate()) return;
    console.warn(error);
    failed = wanted.key;
    isMaking = "";
    tracks.restore();
    complain(error.isTold ? error.message : NO_SOUND);
  } finally {
    if (!isLate()) isMaking = "";
    showTime();
  }
}

/** Until an audio element can play from a place. */
function load(deck, url, at) {
  deck.pause();
  deck.src = url;
  deck.currentTime = at;
  return ready(deck);
}

function ready(deck) {
  if (deck.readyState >= 3 && !deck.seeking) return Promise.resolve();
  return new Promise((resolve, reject) => {
    const events = new AbortController();
    const finish = (call, value) => {
      events.abort();
      call(value);
    };
    const look = () => deck.readyState >= 3 && !deck.seeking && finish(resolve);
    for (const name of ["canplay", "seeked"]) deck.addEventListener(name, look, { signal: events.signal });
    deck.addEventListener("error", () => finish(reject, new Error("the file cannot be played")), { signal: events.signal });
    setTimeout(() => finish(reject, new Error("the file does not come")), PATIENCE_MS);
  });
}

/** Waits with the spare a little ahead, until the playing sound comes to where it stands. */
async function meet(isLate) {
  for (let lead = LEAD_SECONDS; lead < 4; lead *= 2) {
    spare.currentTime = sound.currentTime + lead;
    await ready(spare);
    if (isLate() || sound.paused || spare.currentTime > sound.currentTime + START_SECONDS) break;
  }
  while (!isLate() && !sound.paused) {
    const left = 1000 * (spare.currentTime - sound.currentTime - START_SECONDS);
    if (left <= 0 || left > 5000) break; // the user may have gone elsewhere
    await wait(Math.min(left, 40));
  }
  if (sound.paused || Math.abs(spare.currentTime - sound.currentTime) > 0.1) spare.currentTime = sound.currentTime;
}

/** The spare becomes the sound; if the other plays they cross over. */
function exchange(plays) {
  const old = sound;
  const wasPlaying = !old.paused;
  [sound, spare] = [spare, old];
  player.append(old); // so that the first audio element is the one that is heard
  sound.volume = wasPlaying ? 0 : level();
  if (wasPlaying || plays) play();
  if (wasPlaying) crossFade(old, sound);
}

async function crossFade(old, next) {
  await new Promise((resolve) => {
    next.addEventListener("playing", resolve, { once: true });
    setTimeout(resolve, 250);
  });
  const begin = performance.now();
  for (let share = 0; share < 1 && !next.paused && next === sound; await wait(8)) {
    share = Math.min(1, (performance.now() - begin) / FADE_MS);
    next.volume = level() * Math.sin((share * Math.PI) / 2);
    old.volume = level() * Math.cos((share * Math.PI) / 2);
  }
  if (old !== sound) old.pause();
  if (next === sound) next.volume = level();
}

const level = () => volume.value ** 2;

/** Writes a text or an attribute where it is another: what stays costs no new layout. */
function write(node, text, attribute) {
  const known = attribute ? node.getAttribute(attribute) : node.textContent;
  if (known === String(text)) return;
  if (attribute) node.setAttribute(attribute, text);
  else node.textContent = text;
}

const shown = Object.fromEntries(["now", "total", "play", "roll"].map((name) => [name, part(name)]));

function showTime() {
  const now = position();
  const whole = isLoaded() && Number.isFinite(sound.duration) ? sound.duration : total;
  const isPlaying = isLoaded() && !sound.paused;
  write(shown.now, clock(now));
  write(shown.total, ` / ${clock(whole)}`);
  player.classList.toggle("playing", isPlaying);
  player.classList.toggle("making", isPending());
  const label = isPending() ? "Making the sound" : isPlaying ? "Pause" : "Play";
  write(shown.play, label, "aria-label");
  write(shown.play, isPending() ? `${label} …` : `${label} (space bar)`, "title");
  write(shown.roll, Math.round(whole), "aria-valuemax");
  write(shown.roll, Math.round(now), "aria-valuenow");
  write(shown.roll, `${clock(now)} of ${clock(whole)}`, "aria-valuetext");
  roll.isPlaying = isPlaying;
  roll.setPlayhead(wantedSound() ? beatAt(now) : null, isPlaying);
}

function seek(seconds) {
  if (!wantedSound()) return;
  cursor = Math.max(0, Math.min(seconds, (isLoaded() && sound.duration) || total || seconds));
  if (isLoaded()) sound.currentTime = cursor;
  isNewPiece = isNewPiece && isLoaded();
  roll.follow = true;
  showTime();
}

function play() {
  sound.play().catch((error) => {
    if (error.name !== "AbortError") complain(NO_SOUND); // it was paused before it began
  });
}

function toggle() {
  const wanted = wantedSound();
  if (!wanted) return;
  roll.follow = true;
  if (!isLoaded()) {
    if (!isMaking) tune(wanted, true);
  } else if (sound.paused) play();
  else sound.pause();
}

function animate() {
  showTime();
  if (!sound.paused) requestAnimationFrame(animate);
}

for (const deck of [sound, spare]) {
  const heard = (call) => (event) => event.target === sound && call();
  deck.addEventListener("play", heard(animate));
  for (const name of ["pause", "loadedmetadata", "seeked", "ended"]) deck.addEventListener(name, heard(showTime));
  deck.addEventListener("error", heard(() => isLoaded() && complain(NO_SOUND)));
}

volume.addEventListener("input", () => {
  sound.volume = level();
});
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
