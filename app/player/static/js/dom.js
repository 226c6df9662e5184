// Elements of the page: making one in a single expression, changing only what differs, canvas sizes.

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

export const pixelRatio = () => window.devicePixelRatio || 1;

/** Gives a canvas as many pixels as the device shows of it. */
export function fitCanvas(canvas) {
  const width = Math.round(canvas.clientWidth * pixelRatio());
  const height = Math.round(canvas.clientHeight * pixelRatio());
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
}
