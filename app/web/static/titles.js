// Tooltips of a tab's widgets: `told` are pairs of a class and a tooltip.
export function start({ element }, told) {
  const tab = element.closest(".tabitem");
  const tell = () => {
    for (const [name, text] of told) {
      for (const one of tab.querySelectorAll(`.${name}`)) one.title = text;
    }
  };
  // buttons come and go
  new MutationObserver(tell).observe(tab, { childList: true, subtree: true });
  tell();
}
