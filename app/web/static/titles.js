// Tooltips of a tab's widgets; `titles`: pairs of a CSS selector that begins with a class, and a tooltip. That of a grey button is the
// reason, which is the line below it.
export function start({ element }, titles) {
  const tab = element.closest(".tabitem");
  function tell(one, text) {
    const why = one.disabled ? (one.closest(".action")?.querySelector(".estimate")?.textContent.trim() ?? "") : "";
    const tip = why || text;
    if (one.title !== tip) one.title = tip;
    if (why && one.getAttribute("aria-description") !== why) one.setAttribute("aria-description", why);
    else if (!why && one.hasAttribute("aria-description")) one.removeAttribute("aria-description");
  }
  const update = () => {
    for (const [name, text] of titles) {
      for (const one of tab.querySelectorAll(`.${name}`)) tell(one, text);
    }
  };
  // Gradio adds and removes buttons
  const changes = { childList: true, subtree: true, characterData: true, attributes: true, attributeFilter: ["disabled"] };
  new MutationObserver(update).observe(tab, changes);
  update();
}
