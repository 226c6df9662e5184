// Files of the variation in sight, by their kinds: the button for MIDI and the menu of the others.

const NO_FILE =
  "The file cannot be had: it was removed, or the program has ended; make the music again with the settings below.";
const KINDS = [
  ["midi", "MIDI", "the whole piece"],
  ["new_midi", "MIDI", "the new music alone"],
  ["flac", "FLAC", "lossless audio"],
  ["wav", "WAV", "uncompressed audio"],
  ["ogg", "OGG", "small audio file"],
  ["stems", "Stems", "one audio file per track (ZIP)"],
  ["replay", "Settings", "to make the same music again (JSON)"],
];

const kindsOf = (variation) => variation?.files ?? [];

/** Gives a file of the variation in sight to the browser, after a look whether it is there. */
async function download(kind) {
  const button = part(`file-${kind}`);
  if (button.classList.contains("working")) return;
  button.classList.add("working");
  part("more").classList.toggle("working", kind !== "midi");
  try {
    const path = await ask("file", { job: frame.job, variation: chosen, kind });
    const link = document.createElement("a");
    link.href = fileUrl(path);
    const answer = await fetch(link.href, { method: "HEAD" });
    if (!answer.ok) throw new Error(`${link.href}: ${answer.status}`);
    link.download = path.split("/").pop();
    link.click();
  } catch (error) {
    console.warn(error);
    complain(error.isTold && error.message !== NO_SOUND ? error.message : NO_FILE);
  } finally {
    button.classList.remove("working");
    part("more").classList.remove("working");
  }
}

function renderFiles(variation) {
  const kinds = new Set(kindsOf(variation));
  part("downloads").hidden = !kinds.size;
  for (const [kind] of KINDS) part(`file-${kind}`).hidden = !kinds.has(kind);
  part("more").hidden = kinds.size - kinds.has("midi") < 1;
  if (part("more").hidden) openMenu(false);
}

const entries = () => [...part("menu").children].filter((entry) => !entry.hidden);

function openMenu(isOpen, focus) {
  part("menu").hidden = !isOpen;
  part("more").setAttribute("aria-expanded", isOpen);
  if (isOpen && focus !== undefined) entries().at(focus)?.focus();
}

function addFiles() {
  for (const [kind, name, what] of KINDS) {
    const button = kind === "midi" ? part("file-midi") : document.createElement("button");
    button.type = "button";
    button.dataset.part = `file-${kind}`;
    button.addEventListener("click", () => {
      const isInMenu = button.parentElement === part("menu");
      openMenu(false);
      if (isInMenu) part("more").focus({ preventScroll: true });
      download(kind);
    });
    if (kind === "midi") continue;
    button.setAttribute("role", "menuitem");
    button.tabIndex = -1;
    const [first, second] = [document.createElement("b"), document.createElement("span")];
    [first.textContent, second.textContent] = [name, what];
    button.append(first, " ", second);
    part("menu").append(button);
  }
}
addFiles();

part("more").addEventListener("click", (event) => {
  const isOpen = part("menu").hidden;
  openMenu(isOpen, isOpen && event.detail === 0 ? 0 : undefined); // by a key: to its first entry
});
part("more").addEventListener("keydown", (event) => {
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  event.preventDefault();
  openMenu(true, event.key === "ArrowDown" ? 0 : -1);
});
part("menu").addEventListener("keydown", (event) => {
  const all = entries();
  const index = all.indexOf(event.target);
  const next = { ArrowDown: (index + 1) % all.length, ArrowUp: (index - 1 + all.length) % all.length, Home: 0, End: all.length - 1 }[event.key];
  if (next !== undefined) all[next].focus();
  else if (event.key === "Escape" || event.key === "Tab") {
    openMenu(false);
    part("more").focus();
    if (event.key === "Tab") return;
  } else return;
  event.preventDefault();
  event.stopPropagation();
});
part("downloads").addEventListener("focusout", (event) => {
  if (event.relatedTarget && !part("downloads").contains(event.relatedTarget)) openMenu(false);
});
