// Tooltips of widgets; `titles`: pairs of a CSS selector that begins with a class, and a tooltip. That of a grey
// button is the reason, which is the line below it.
export function showTitles(titles) {
  const desk = document.getElementById("desk");
  function tell(one, text) {
    const why = one.disabled ? (one.closest(".action")?.querySelector(".estimate")?.textContent.trim() ?? "") : "";
    const tip = why || text;
    if (one.title !== tip) one.title = tip;
    if (why && one.getAttribute("aria-description") !== why) one.setAttribute("aria-description", why);
    else if (!why && one.hasAttribute("aria-description")) one.removeAttribute("aria-description");
  }
  const update = () => {
    for (const [name, text] of titles) {
      for (const one of desk.querySelectorAll(`.${name}`)) tell(one, text);
    }
  };
  // Gradio adds and removes buttons
  const changes = { childList: true, subtree: true, characterData: true, attributes: true, attributeFilter: ["disabled"] };
  const columns = [document.getElementById("controls"), document.getElementById("over")];
  for (const column of columns) new MutationObserver(update).observe(column, changes);
  update();
}
