// Files that are dropped anywhere on the page are uploaded, and their tab opens: the browser would open the
// file instead of the page. A file that comes while another one is read waits for its turn.

const BOX = "#controls #write-upload";

const inputOf = () => document.querySelector(`${BOX} input[type=file]`);

/** Whether the box can take a file: Gradio removes its input while it reads one. */
const isFree = (input) => Boolean(input) && !input.files.length;

export function acceptDrops() {
  const waiting = [];
  // the list of the study's files has a box of its own
  const isOurs = (event) => event.dataTransfer?.types.includes("Files") && !event.target.closest?.("#study-upload");
  let timer;

  function mark(isOver) {
    clearTimeout(timer);
    document.body.classList.toggle("file-over", isOver);
    if (isOver) timer = setTimeout(() => mark(false), 300); // dragover repeats while the file is held
  }

  function give() {
    for (let input = inputOf(); waiting.length && isFree(input); input = inputOf()) {
      const files = new DataTransfer();
      files.items.add(waiting.shift());
      input.files = files.files;
      input.dispatchEvent(new Event("change", { bubbles: true })); // card.js empties it if the file is too large
    }
  }

  function open() {
    const tab = document.querySelector(BOX).closest(".tabitem");
    if (!tab.getClientRects().length) document.getElementById(`${tab.id}-button`)?.click();
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
    waiting.push(...event.dataTransfer.files);
    open();
    give();
  }, early);
  new MutationObserver(give).observe(document.getElementById("controls"), { childList: true, subtree: true });
}
