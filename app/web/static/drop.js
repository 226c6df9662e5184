// A file that is dropped anywhere on the page is uploaded in the open tab, or in the first one if the
// open tab takes no file: the browser would open it instead of the page.
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
    const [file] = event.dataTransfer.files;
    const inputs = [...document.querySelectorAll("#controls .upload input[type=file]")];
    const input = inputs.find((one) => one.closest(".tabitem").getClientRects().length) ?? inputs[0];
    if (!file || !input) return;
    const tab = input.closest(".tabitem").id;
    if (!input.closest(".tabitem").getClientRects().length) document.getElementById(`${tab}-button`)?.click();
    const files = new DataTransfer();
    files.items.add(file);
    input.files = files.files;
    input.dispatchEvent(new Event("change", { bubbles: true }));
  });
}
