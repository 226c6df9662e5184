// Files that are dropped anywhere on the page are uploaded, and their tab opens: the browser would open the
// file instead of the page. A file that comes while another one is read waits for its turn.

const BOX = "#controls #write-upload";
const waiting = [];

/** Uploads files as if they had been chosen, one after the other, and opens their tab. */
export function give(...files) {
  waiting.push(...files);
  const tab = document.querySelector(BOX).closest(".tabitem");
  if (files.length && !tab.getClientRects().length) document.getElementById(`${tab.id}-button`)?.click();
  next();
}

/** Gives the box the next file, if it can take one: Gradio removes its input while it reads a file. */
function next() {
  const find = () => document.querySelector(`${BOX} input[type=file]`);
  for (let input = find(); waiting.length && input && !input.files.length; input = find()) {
    const files = new DataTransfer();
    files.items.add(waiting.shift());
    input.files = files.files;
    input.dispatchEvent(new Event("change", { bubbles: true })); // card.js empties it if the file is too large
  }
}

export function acceptDrops() {
  // the list of the study's files has a box of its own
  const isOurs = (event) => event.dataTransfer?.types.includes("Files") && !event.target.closest?.("#study-upload");
  let timer;
  function mark(isOver) {
    clearTimeout(timer);
    document.body.classList.toggle("file-over", isOver);
    if (isOver) timer = setTimeout(() => mark(false), 300); // dragover repeats while the file is held
  }
  const early = { capture: true };
  document.addEventListener("dragover", (event) => {
    if (!isOurs(event)) return mark(false);
    event.preventDefault();
    event.dataTransfer.dropEffect = "copy";
    mark(true);
  }, early);
  document.addEventListener("drop", (event) => {
    mark(false);
    if (!isOurs(event)) return;
    event.preventDefault();
    event.stopPropagation(); // Gradio takes no file while it reads another one
    give(...event.dataTransfer.files);
  }, early);
  new MutationObserver(next).observe(document.getElementById("controls"), { childList: true, subtree: true });
}
