// Tooltips of a tab's widgets; `titles`: pairs of a CSS class and a tooltip.
export function start({ element }, titles) {
  const tab = element.closest(".tabitem");
  const update = () => {
    for (const [name, text] of titles) {
      for (const one of tab.querySelectorAll(`.${name}`)) one.title = text;
    }
  };
  // Gradio adds and removes buttons
  new MutationObserver(update).observe(tab, { childList: true, subtree: true });
  update();
}
