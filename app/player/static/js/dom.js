// Elements of the page: creating them in one expression, changing only what differs, and listening to
// events and drags.

/** A new element; names that are not properties of it become attributes. */
export function make(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in node) node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

/** Sets a text or an attribute if it differs: an unchanged one costs no layout. */
export function write(node, text, attribute) {
  const known = attribute ? node.getAttribute(attribute) : node.textContent;
  if (known === String(text)) return;
  if (attribute) node.setAttribute(attribute, text);
  else node.textContent = text;
}

/** Why a control cannot be used while there is a job. */
export const BUSY_REASON = "Music is being generated: wait until it has ended, or stop it first.";

/** Makes a control grey for a reason, which its tooltip and description tell; "" makes it usable. */
export function grey(control, why) {
  control.disabled = Boolean(why);
  control.dataset.use ??= control.title;
  write(control, why || control.dataset.use, "title");
  if (why) write(control, why, "aria-description");
  else control.removeAttribute("aria-description");
}

/** Closes a small window by Escape, and when the focus or a press goes elsewhere than to it or its opener. */
export function closeOutside(box, opener, close) {
  const isOutside = (target) => !box.contains(target) && !opener()?.contains(target);
  box.addEventListener("focusout", ({ relatedTarget }) => relatedTarget && isOutside(relatedTarget) && close());
  box.addEventListener("keydown", ({ key }) => key === "Escape" && close());
  document.addEventListener("pointerdown", ({ target }) => isOutside(target) && close(), { capture: true });
}

/** Listens to several events, whose names are separated by spaces. */
export function on(node, names, call, options) {
  for (const name of names.split(" ")) node.addEventListener(name, call, options);
}

/** Calls `start` and `move` with the pointer events of a drag, and `end` after it. */
export function onDrag(node, { start, move = start, end = () => {} }) {
  let pointer = null;
  node.addEventListener("pointerdown", (event) => {
    if (event.button > 0) return;
    pointer = event.pointerId;
    node.setPointerCapture(pointer);
    start(event);
  });
  node.addEventListener("pointermove", (event) => event.pointerId === pointer && move(event));
  on(node, "pointerup pointercancel", (event) => {
    if (event.pointerId !== pointer) return;
    pointer = null;
    end();
  });
}
