"""The list of what was made in a session, below the player."""

from __future__ import annotations

import html
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.web.session import Session


def results_list(session: Session, *, moved: bool = False) -> str:
    """The results of a session as buttons, the newest first; nothing where there are none.

    Where it `moved`, the session's tab opens: as an output of callbacks, tabs would make Gradio
    look through all widgets in them at every frame of the player.
    """
    opens = f"<i data-open='{session.tab}' hidden></i>" if moved else ""
    if not session.results:
        return opens
    shown = session.current.frame.get("job", "")
    items = []
    for index, result in reversed(list(enumerate(session.results))):
        frame = result.step.frame
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(result.made))
        count = len(frame.get("variations", []))
        several = f" · {count} variations" if count > 1 else ""
        here = " aria-current='true'" if frame.get("job", "") == shown else ""
        items.append(
            f"<li><button type='button' data-index='{index}'{here}>"
            f"<b>{html.escape(frame.get('title', ''))}</b>"
            f"<span>{html.escape(frame.get('subtitle', ''))}{several}</span>"
            f"<time datetime='{when}'></time></button></li>"  # the browser knows the time zone
        )
    return f"{opens}<h2>Made in this session</h2><ul>{''.join(items)}</ul>"


RESULTS_SCRIPT = r"""
element.addEventListener("click", (event) => {
  const button = event.target.closest("[data-index]");
  if (button) trigger("back", { index: Number(button.dataset.index) });
});
function tellTimes() {
  for (const time of element.querySelectorAll("time:empty")) {
    const when = new Date(time.dateTime);
    time.textContent = when.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  }
}
new MutationObserver(tellTimes).observe(element, { childList: true, subtree: true });
watch("value", () => {
  const wanted = /data-open='(\w+)'/.exec(props.value ?? "");
  if (wanted) document.getElementById(`${wanted[1]}-tab-button`)?.click();
});

// a page that is opened again in a tab of the browser is known by a token: see Callbacks.adopt
function open() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  const token = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  const [known, gone] = ["relpe", "relpe gone"].map((name) => `${name} ${location.pathname}`);
  const before = sessionStorage.getItem(known) ?? "";
  const isGone = sessionStorage.getItem(gone) === before; // not so in a duplicated tab
  sessionStorage.setItem(known, token);
  sessionStorage.removeItem(gone);
  window.addEventListener("pagehide", () => sessionStorage.setItem(gone, token));
  window.addEventListener("pageshow", (event) => {
    if (event.persisted) sessionStorage.removeItem(gone); // it was not gone after all
  });
  trigger("opened", { before, is_gone: isGone, token });
}
try {
  open();
} catch (error) {
  console.warn(error); // the browser keeps nothing
}
"""
