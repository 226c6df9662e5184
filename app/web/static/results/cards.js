// The cards of results, which this browser keeps (shelf.js), and the token by which the server recognises a
// reloaded page. `props.value`: what results_value of cards.py returns.

import { give } from "../drop.js";
import { clear, keep, load } from "./shelf.js";

const NOT_KEPT = "This browser keeps no results: its storage is full or forbidden, as in a private window. They last until the page is closed.";
const OLDEST_WENT = "The oldest results without a star were deleted, since 50 MB are kept.";
const LOST = "The server does not answer: it has ended, or the connection was lost.";
const NAME = /[^\p{L}\p{N}]+/gu; // what file names leave out

export function start({ element, props, watch, trigger, server }) {
  let cards = [];
  let value = { job: "", cards: [], known: [], discarded: [] };
  let playing = ""; // the id of the card that is to be played once it is shown

  const list = element.querySelector("ul");
  const player = document.querySelector("#player .player");
  const say = (text) => (element.querySelector("[role=alert]").textContent = text);
  const isKnown = ({ job }) => value.known.includes(job);
  const fileOf = ({ name, midi }) => new File([midi], `${name.replace(NAME, "-")}.mid`);

  async function save(card) {
    try {
      const gone = await keep(card);
      if (!gone.length) return;
      cards = cards.filter(({ id }) => !gone.includes(id));
      say(OLDEST_WENT);
    } catch (error) {
      console.warn(error);
      say(NOT_KEPT);
    }
  }

  async function contentOf(job, variation, kind) {
    const { path, error } = await server.file({ job, variation, kind });
    if (!path) throw new Error(error);
    const { root = "", api_prefix = "" } = window.gradio_config ?? {};
    return fetch(`${root}${api_prefix}/file=${path.split("/").map(encodeURIComponent).join("/")}`);
  }

  /** Adds the cards of the result that is shown, if they are new. */
  async function add() {
    const now = Date.now();
    for (const { job, variation, ...made } of value.cards) {
      const id = `${job}/${variation}`;
      if (cards.some((card) => card.id === id)) continue;
      const card = { id, job, variation, ...made, when: now - variation, star: false, midi: new Blob(), settings: "" };
      cards = [...cards, card].sort((one, other) => other.when - one.when);
      render();
      try {
        card.midi = await (await contentOf(job, variation, "midi")).blob();
        card.settings = await (await contentOf(job, variation, "replay")).text();
        await save(card);
      } catch (error) {
        console.warn(error);
        say(LOST);
      }
    }
  }

  function make(card) {
    const item = document.createElement("li");
    item.dataset.id = card.id;
    item.innerHTML =
      "<button type='button' data-show><b hidden>best</b><time></time><small></small></button><input maxlength='60' aria-label='Name of the result' title='Change the name'>" +
      "<button type='button' data-play title='Play'>▶</button><button type='button' data-star title='Star: deleted last when 50 MB are full'></button><a>MIDI</a>";
    const part = (name) => item.querySelector(name);
    part("[data-show]").insertAdjacentHTML("afterbegin", card.roll); // made by cards.py, without texts
    part("[data-show]").setAttribute("aria-label", `Show ${card.name}, ${card.text}`);
    part("b").hidden = !card.best;
    part("b").title = "The one of these variations that is most like real music";
    part("small").textContent = part("small").title = card.text;
    const when = new Date(card.when);
    const isToday = when.toDateString() === new Date().toDateString();
    part("time").textContent = isToday ? when.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" }) : when.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
    part("input").value = card.name;
    part("[data-play]").ariaLabel = `Play ${card.name}`;
    part("[data-star]").ariaLabel = `Star ${card.name}`;
    part("[data-star]").ariaPressed = String(card.star);
    part("[data-star]").textContent = card.star ? "★" : "☆";
    part("a").title = "Download the MIDI file";
    part("a").href = "#";
    part("a").addEventListener("click", ({ target }) => {
      target.href = URL.createObjectURL(fileOf(card));
      target.download = fileOf(card).name;
      setTimeout(() => URL.revokeObjectURL(target.href), 60_000);
    });
    part("input").addEventListener("change", ({ target }) => {
      card.name = target.value.trim() || card.name;
      save(card).then(render);
    });
    part("[data-show]").addEventListener("click", () => show(card));
    part("[data-play]").addEventListener("click", () => show(card, true));
    part("[data-star]").addEventListener("click", () => {
      card.star = !card.star;
      save(card).then(render);
    });
    return item;
  }

  function render() {
    const seen = cards.filter(({ job }) => !value.discarded.includes(job));
    const focus = list.contains(document.activeElement) ? [...list.querySelectorAll("button, input, a")].indexOf(document.activeElement) : -1;
    list.replaceChildren(...seen.map(make));
    mark();
    if (focus >= 0) list.querySelectorAll("button, input, a")[focus]?.focus();
    element.querySelector("section").hidden = !seen.length;
  }

  /** Marks the card of the variation that the player shows. */
  function mark() {
    const { shown } = player.dataset;
    for (const item of list.children) item.ariaCurrent = String(item.dataset.id === `${value.job}/${shown}`);
  }

  /** Shows a result again; one that the server has no more is uploaded. */
  function show(card, plays = false) {
    playing = plays ? card.id : "";
    if (value.job === card.job) select(card);
    else if (isKnown(card)) trigger("back", { job: card.job });
    else give(fileOf(card));
  }

  function select(card) {
    document.querySelectorAll("[data-part=chips] [role=radio]")[card.variation]?.click();
    if (playing !== card.id) return;
    playing = "";
    const play = document.querySelector(".player:not(.playing) [data-part=play]");
    if (play && !play.disabled) play.click();
  }

  element.querySelector("[data-clear]").addEventListener("click", () => {
    cards = [];
    clear().catch(() => say(NOT_KEPT));
    trigger("clear");
    render();
  });
  function accept() {
    if (!props.value?.known) return;
    value = JSON.parse(JSON.stringify(props.value));
    add();
    render();
    const card = cards.find(({ id }) => id === playing);
    if (card && card.job === value.job) setTimeout(() => select(card)); // once the player has the frame
  }
  load().then((kept) => (cards = [...cards, ...kept.filter(({ id }) => !cards.some((card) => card.id === id))])).catch(() => say(NOT_KEPT)).finally(render);
  watch("value", accept);
  accept();
  new MutationObserver(mark).observe(player, { attributeFilter: ["data-shown"] });
  open(trigger);
}

/** Tells the server the token of this browser tab: see HistoryCallbacks.adopt. */
function open(trigger) {
  try {
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
  } catch (error) {
    console.warn(error); // the browser does not allow storage
  }
}
