// The course of a test: welcome, sound, trials, end.
import { make, show } from "./dom.js";
import { checkLevel } from "./level.js";
import { end, explain, practiceIsOver, spelled, welcome } from "./screens.js";
import { get, hasFinished, post, setListener, storedListener } from "./server.js";
import { runTrial } from "./trial.js";

function showProgress(state) {
  const bar = document.getElementById("progress");
  const done = state.position - 1;
  bar.hidden = false;
  bar.querySelector(".done").style.width = `${(100 * done) / state.trials}%`;
  bar.querySelector("p").textContent = done < state.trials ? `${state.position} of ${state.trials}` : "done";
}

function showCode(code) {
  document.getElementById("foot").replaceChildren(
    "Your code ", make("b", {}, spelled(code)), " lets you continue later or on another device.");
}

async function run(state, study) {
  if (state.position <= state.trials) setListener(state.listener);
  if (state.position <= state.trials) {
    showCode(state.listener);
    await checkLevel(state);
  }
  let isFirst = true;
  while (state.position <= state.trials) {
    showProgress(state);
    if (state.begins || isFirst) await explain(state, study);
    else if (state.ends_practice) await practiceIsOver();
    isFirst = false;
    state = await runTrial(state, study);
    document.getElementById("saved").textContent = "";
  }
  showProgress(state);
  document.getElementById("foot").replaceChildren();
  end(state);
}

async function start() {
  const study = await get("study");
  document.title = study.title;
  document.getElementById("title").textContent = study.title;
  const begin = async () => {
    const { listener } = await post("listeners");
    setListener(listener);
    const state = await get("listener");
    run(state, study);
  };
  const resume = async (code) => {
    const before = storedListener();
    setListener(code);
    try {
      run(await get("listener"), study);
    } catch (error) {
      setListener(error.status === 404 && code === before ? "" : before);
      throw error;
    }
  };
  if (hasFinished()) {
    try {
      await resume(storedListener());
      return;
    } catch (error) {
      if (!error.status) throw error; // otherwise the database is another one
    }
  }
  welcome(study, storedListener(), { begin, resume });
}

start().catch((error) => {
  show(make("p", { className: "alert" }, error.status ? error.message : "The page could not be loaded."),
    make("button", { className: "second", onclick: () => location.reload() }, "Try again"));
});
