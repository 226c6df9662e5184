// The card of an upload.
export function start({ element, trigger }) {
  element.addEventListener("click", (event) => {
    if (event.target.closest("[data-forget]")) trigger("forget");
  });
  // files that are too large are not sent, since Gradio's message would not say what to do
  const tab = element.closest(".tabitem");
  tab.addEventListener("change", (event) => {
    const [file] = event.target.files ?? [];
    if (!file || !event.target.closest(".upload")) return;
    for (const before of element.querySelectorAll(".refused")) before.classList.add("past");
    const most = window.gradio_config?.max_file_size;
    if (!most || file.size <= most) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    event.target.value = "";
    trigger("too_large", { name: file.name, size: file.size });
  }, { capture: true });
}
