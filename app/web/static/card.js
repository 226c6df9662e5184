// The card of an upload.
export function start({ element, trigger }) {
  let told;
  let isOpen = false; // the fold, also of the card that replaces this one
  element.addEventListener("toggle", ({ target }) => (isOpen = target.open), { capture: true });
  element.addEventListener("click", (event) => {
    if (event.target.closest("[data-forget]")) trigger("forget");
    const drums = event.target.closest("[data-drums]");
    if (drums) trigger("drums", { track: Number(drums.dataset.drums), drums: drums.ariaPressed !== "true" });
  });
  // the reason may be out of view, as the form is long
  new MutationObserver(() => {
    if (isOpen) element.querySelector("details")?.setAttribute("open", "");
    const refused = element.querySelector(".refused");
    if (refused?.textContent !== told) refused?.scrollIntoView({ block: "nearest" });
    told = refused?.textContent;
    // Gradio may replace the element, or only its text or class
  }).observe(element, { childList: true, subtree: true, characterData: true, attributeFilter: ["class"] });
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
