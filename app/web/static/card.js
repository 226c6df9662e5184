// The card of an upload.
export function start({ element, trigger }) {
  element.addEventListener("click", (event) => {
    if (event.target.closest("[data-forget]")) trigger("forget");
  });
  // files that are too large are not sent, since Gradio's message would not say what to do
  const tab = element.closest(".tabitem");
  function check(event, [file]) {
    if (!file || !event.target.closest(".upload")) return;
    for (const before of element.querySelectorAll(".refused")) before.classList.add("past");
    const most = window.gradio_config?.max_file_size;
    if (!most || file.size <= most) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    if (event.type === "change") event.target.value = "";
    else event.target.dispatchEvent(new DragEvent("dragleave", { bubbles: true }));
    trigger("too_large", { name: file.name, size: file.size });
  }
  const early = { capture: true };
  tab.addEventListener("change", (event) => check(event, event.target.files ?? []), early);
  tab.addEventListener("drop", (event) => check(event, event.dataTransfer?.files ?? []), early);
}
