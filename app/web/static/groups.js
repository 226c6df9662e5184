// Groups of buttons have one Tab stop each, as toolbars of the desktop do: the arrow keys, Home and End move
// within a group. Radio buttons of a group share a name, so that the browser does the same.

const GROUPS = "[role=group], [role=toolbar], [role=radiogroup], [role=tablist], .examples, .player-tracks, #results ul";
const OTHERS = ".player-menu"; // it moves by keys of its own
const MEMBERS = "button, select, a[href], .player-tracks input";

/** The outermost group around an element; null if there is none. */
function groupOf(node) {
  let found = null;
  for (let group = node.closest(GROUPS); group; group = group.parentElement.closest(GROUPS)) found = group;
  return node.closest(OTHERS) ? null : found;
}

function membersOf(group) {
  const all = [...group.querySelectorAll(MEMBERS)];
  return all.filter((one) => !one.disabled && groupOf(one) === group && one.checkVisibility({ visibilityProperty: true }));
}

/** Makes one member reachable by Tab: `chosen`, the last one that was, or the one that is pressed. */
function rove(group, chosen) {
  const all = membersOf(group);
  if (!all.length) return;
  const isOn = (one) => one.matches("[aria-pressed=true], [aria-checked=true], [aria-selected=true], [aria-current=true]");
  const stop = chosen ?? all.find((one) => one.dataset.stop) ?? all.find(isOn) ?? all[0];
  for (const one of all) {
    if (one.tabIndex !== (one === stop ? 0 : -1)) one.tabIndex = one === stop ? 0 : -1;
    if (chosen) delete one.dataset.stop;
  }
  if (chosen) chosen.dataset.stop = "1";
}

/** Moves the focus within a group; a list of choices keeps its own arrow keys. */
function walk(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey || event.target.matches?.("select")) return;
  if (event.target.closest?.(".player-asked")) return; // its own keys bring cells into view
  const group = event.target.closest?.(GROUPS) && groupOf(event.target);
  if (!group) return;
  const all = membersOf(group);
  const index = all.indexOf(event.target);
  const row = event.target.closest("li"); // of a list: the same member of the row below or above
  const inRow = (other) => row && other?.querySelectorAll(MEMBERS)[[...row.querySelectorAll(MEMBERS)].indexOf(event.target)];
  const [right, left] = [all[index + 1] ?? all[0], all.at(index - 1)];
  const [down, up] = [inRow(row?.nextElementSibling), inRow(row?.previousElementSibling)];
  const next = { ArrowRight: right, ArrowLeft: left, ArrowDown: down, ArrowUp: up, Home: all[0], End: all.at(-1) }[event.key];
  if (index < 0 || !next) return;
  event.preventDefault();
  event.stopPropagation();
  next.focus();
  if (next.matches("[role=radio]")) next.click();
}

export function roveInGroups() {
  let isComing = false;
  const update = () => {
    isComing = false;
    for (const group of document.querySelectorAll(GROUPS)) {
      if (!group.parentElement.closest(GROUPS)) rove(group);
    }
    for (const radio of document.querySelectorAll("#controls fieldset input[type=radio]")) {
      const fieldset = radio.closest("fieldset");
      fieldset.dataset.radios ??= radio.name; // Gradio names each button differently
      if (radio.name !== fieldset.dataset.radios) radio.name = fieldset.dataset.radios;
      fieldset.ariaLabel ??= fieldset.querySelector("[data-testid=block-info]")?.textContent.trim() ?? null;
    }
    const fold = document.querySelector(".expert > .label-wrap");
    if (fold) fold.ariaExpanded = String(fold.classList.contains("open"));
  };
  const updateSoon = () => {
    if (!isComing) requestAnimationFrame(update);
    isComing = true;
  };
  document.addEventListener("focusin", ({ target }) => {
    const group = target.closest(GROUPS) && groupOf(target);
    if (group && membersOf(group).includes(target)) rove(group, target);
  });
  document.addEventListener("keydown", walk, { capture: true });
  const changes = { childList: true, subtree: true, attributes: true, attributeFilter: ["hidden", "disabled", "aria-selected", "style", "class"] };
  new MutationObserver(updateSoon).observe(document.getElementById("desk"), changes);
  update();
}
