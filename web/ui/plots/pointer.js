// Pointer on a canvas: position for a readout, a dragged rectangle for a zoom, double click for a reset.

import { h } from "../dom.js";

const LEAST_DRAG = 5;

/// Follows the pointer on `canvas`, which `parent` contains; positions are CSS pixels in the canvas.
/// - `onPoint(x, y)` while the pointer is on the canvas, `onLeave()` afterwards
/// - `onDrag({ left, top, right, bottom })` at the end of a drag; `isTall` extends the rectangle over the whole height
/// - `onReset()` at a double click
export function followPointer(canvas, parent, { onPoint, onLeave, onDrag, onReset, isTall = false }) {
  const marked = h("div", { class: "u-select marked", hidden: true });
  parent.append(marked);
  let start = null;
  const at = ({ clientX, clientY }) => {
    const box = canvas.getBoundingClientRect();
    return { x: Math.min(box.width, Math.max(0, clientX - box.x)), y: Math.min(box.height, Math.max(0, clientY - box.y)) };
  };
  const rectangle = (one, other) => ({
    left: Math.min(one.x, other.x), right: Math.max(one.x, other.x),
    top: isTall ? 0 : Math.min(one.y, other.y), bottom: isTall ? canvas.clientHeight : Math.max(one.y, other.y),
  });
  const isDrag = ({ left, right, top, bottom }) => right - left >= LEAST_DRAG && bottom - top >= LEAST_DRAG;

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || event.pointerType === "touch") return;
    event.preventDefault();
    start = at(event);
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const here = at(event);
    onPoint(here.x, here.y);
    if (!start) return;
    const { left, right, top, bottom } = rectangle(start, here);
    marked.hidden = false;
    Object.assign(marked.style, {
      left: `${canvas.offsetLeft + left}px`, top: `${canvas.offsetTop + top}px`, width: `${right - left}px`, height: `${bottom - top}px`,
    });
  });
  const end = (event) => {
    if (!start) return;
    const dragged = rectangle(start, at(event));
    start = null;
    marked.hidden = true;
    if (event.type === "pointerup" && isDrag(dragged)) onDrag(dragged);
  };
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
  canvas.addEventListener("pointerleave", onLeave);
  canvas.addEventListener("dblclick", onReset);
}
