// Makes elements. Texts become text nodes, so that nothing in a study can become HTML.

export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && name !== "list") element[name] = value;
    else if (value !== null && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

export function icon(path) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  const shape = document.createElementNS(SVG, "path");
  shape.setAttribute("d", path);
  svg.append(shape);
  return svg;
}

export function paragraphs(text) {
  return text.trim().split(/\n\s*\n/).map((part) => make("p", {}, part.trim()));
}

// Shows a screen, and moves the focus to its heading for those who use a keyboard or hear the page.
export function show(...content) {
  const screen = document.getElementById("screen");
  screen.replaceChildren(...content);
  screen.classList.remove("entering");
  void screen.offsetWidth; // restarts the animation
  screen.classList.add("entering");
  window.scrollTo(0, 0);
  const heading = screen.querySelector("h2");
  if (heading) {
    heading.tabIndex = -1;
    heading.focus({ preventScroll: true });
  }
}

export const minutesSeconds = (seconds) =>
  `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, "0")}`;
