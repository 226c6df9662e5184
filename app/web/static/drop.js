// A file that is dropped anywhere on the page is uploaded, and its tab opens: the browser would open the
// file instead of the page.
export function start() {
  const isOutside = (event) => event.dataTransfer?.types.includes("Files") && !event.target.closest?.(".upload");
  let timer;
  function mark(isOver) {
    clearTimeout(timer);
    document.body.classList.toggle("file-over", isOver);
    if (isOver) timer = setTimeout(() => mark(false), 300); // dragover repeats while the file is held
  }
  document.addEventListener("dragover", (event) => {
    if (!isOutside(event)) return mark(false);
    event.preventDefault();
    event.dataTransfer.dropEffect = "copy";
    mark(true);
  });
  document.addEventListener("drop", (event) => {
    mark(false);
    if (!isOutside(event)) return;
    event.preventDefault();
    give(event.dataTransfer.files[0]);
  });
}

/** Uploads a file as if it had been chosen, and opens its tab. */
export function give(file) {
  const input = document.querySelector("#controls .upload input[type=file]");
  if (!file || !input) return;
  const tab = input.closest(".tabitem").id;
  if (!input.closest(".tabitem").getClientRects().length) document.getElementById(`${tab}-button`)?.click();
  const files = new DataTransfer();
  files.items.add(file);
  input.files = files.files;
  input.dispatchEvent(new Event("change", { bubbles: true }));
}
