// Tooltips of a tab's widgets; `told`: pairs of a CSS class and a tooltip.
export function start({ element }, told) {
  const tab = element.closest(".tabitem");
  const tell = () => {
    for (const [name, text] of told) {
      for (const one of tab.querySelectorAll(`.${name}`)) one.title = text;
    }
  };
  // Gradio adds and removes buttons
  new MutationObserver(tell).observe(tab, { childList: true, subtree: true });
  tell();
}
