// What plays and what is downloaded: the audio element, its position in quarter notes, and the files.
// In scope: element, server (Gradio), and the state of player.js, which comes behind this file.

const part = (name) => element.querySelector(`[data-part="${name}"]`);
const player = part("player");
const sound = part("sound");
const volume = part("volume");
const FILES = ["midi", "new_midi", "audio"];
const NO_SOUND =
  "The sound cannot be played: its file was removed, or the program has ended; make the music again with the settings below.";
const NO_FILE =
  "The file cannot be had: it was removed, or the program has ended; make the music again with the settings below.";

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
    if (playing) play();
  } else if (!ready && sound.dataset.url) {
    sound.pause();
    sound.removeAttribute("src");
    sound.load();
    Object.assign(sound.dataset, { url: "", job: "" });
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

function play() {
  sound.play().catch((error) => {
    if (error.name !== "AbortError") complain(NO_SOUND); // it was paused before it began
  });
}

function toggle() {
  if (!sound.dataset.url) return;
  roll.follow = true;
  if (!sound.paused) sound.pause();
  else play();
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
sound.addEventListener("error", () => {
  if (sound.dataset.url) complain(NO_SOUND);
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

/** Gives a file of the variation in sight to the browser, after a look whether it is there. */
async function download(name) {
  const variation = frame.variations[chosen];
  try {
    const path = name === "wav" ? await server.wav({ audio: variation.audio }) : variation[name];
    const link = document.createElement("a");
    link.href = fileUrl(path);
    const answer = await fetch(link.href, { method: "HEAD" });
    if (!answer.ok) throw new Error(`${link.href}: ${answer.status}`);
    link.download = path.split("/").pop();
    link.click();
  } catch (error) {
    console.warn(error);
    complain(NO_FILE);
  }
}

for (const name of FILES) {
  part(name).addEventListener("click", (event) => {
    event.preventDefault();
    download(name);
  });
}
part("wav").addEventListener("click", async () => {
  part("wav").disabled = true;
  await download("wav");
  part("wav").disabled = false;
});
