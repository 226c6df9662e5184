// The lists of results and favourites, and the token by which the server recognises a reloaded page.
export function start({ element, trigger, server }) {
  element.addEventListener("click", (event) => {
    const button = event.target.closest("[data-index]");
    if (button) trigger("back", { index: Number(button.dataset.index) });
    const zip = event.target.closest("[data-zip]");
    if (zip) download(zip);
  });
  async function download(button) {
    button.disabled = true;
    const alert = element.querySelector("[role=alert]");
    try {
      const { path, error } = await server.favourites(JSON.parse(button.dataset.zip));
      alert.textContent = error ?? "";
      if (!path) return;
      const { root = "", api_prefix = "" } = window.gradio_config ?? {};
      const link = document.createElement("a");
      link.href = `${root}${api_prefix}/file=${path.split("/").map(encodeURIComponent).join("/")}`;
      link.download = path.split("/").pop();
      link.click();
    } catch (error) {
      console.warn(error);
      alert.textContent = "The favourites are not available: the program has ended, or the connection was lost.";
    } finally {
      button.disabled = false;
    }
  }
  function fillTimes() {
    for (const time of element.querySelectorAll("time:empty")) {
      const when = new Date(time.dateTime);
      time.textContent = when.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
    }
  }
  new MutationObserver(fillTimes).observe(element, { childList: true, subtree: true });

  // see TabCallbacks.adopt
  function open() {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    const token = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
    const [known, gone] = ["relpe", "relpe gone"].map((name) => `${name} ${location.pathname}`);
    const before = sessionStorage.getItem(known) ?? "";
    const isGone = sessionStorage.getItem(gone) === before; // false in a duplicated tab
    sessionStorage.setItem(known, token);
    sessionStorage.removeItem(gone);
    window.addEventListener("pagehide", () => sessionStorage.setItem(gone, token));
    window.addEventListener("pageshow", (event) => {
      if (event.persisted) sessionStorage.removeItem(gone); // restored from the browser's cache
    });
    trigger("opened", { before, is_gone: isGone, token });
  }
  try {
    open();
  } catch (error) {
    console.warn(error); // the browser does not allow storage
  }
}
