// Drawing on a canvas.

export const pixelRatio = () => window.devicePixelRatio || 1;

/** Resizes a canvas to the number of device pixels that it covers. */
export function fitCanvas(canvas) {
  const width = Math.round(canvas.clientWidth * pixelRatio());
  const height = Math.round(canvas.clientHeight * pixelRatio());
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
}

/** The context of a canvas, scaled to CSS pixels. */
export function penOf(canvas) {
  const pen = canvas.getContext("2d");
  pen.setTransform(pixelRatio(), 0, 0, pixelRatio(), 0, 0);
  return pen;
}

/** Fills a rectangle; `alpha` is its opacity. */
export function fill(pen, colour, left, top, width, height, alpha = 1) {
  pen.globalAlpha = alpha;
  pen.fillStyle = colour;
  pen.fillRect(left, top, width, height);
  pen.globalAlpha = 1;
}

export function clipTo(pen, left, top, width, height) {
  pen.beginPath();
  pen.rect(left, top, width, height);
  pen.clip();
}

/** Draws a note's box in one of three looks; drums and small notes have no round corners. */
export function fillNote(pen, look, left, top, width, height) {
  const isSmall = Math.min(width, height) < 3; // much faster, and looks the same
  if (look === 0 && isSmall) {
    pen.fillRect(left, top, width, height);
    return;
  }
  if (look > 0) {
    const { globalAlpha } = pen;
    pen.globalAlpha = globalAlpha * (look === 1 ? 0.3 : 0.4);
    pen.fillRect(left, top, width, height);
    pen.globalAlpha = globalAlpha;
    if (look === 2) {
      pen.fillRect(left, top, width, height / 2);
      return;
    }
    const edge = Math.min(1.5, height / 3);
    pen.strokeStyle = pen.fillStyle;
    pen.lineWidth = edge;
    pen.strokeRect(left + edge / 2, top + edge / 2, Math.max(0.5, width - edge), Math.max(0.5, height - edge));
    return;
  }
  pen.beginPath();
  pen.roundRect(left, top, width, height, Math.min(3, width / 2, height / 2));
  pen.fill();
}
