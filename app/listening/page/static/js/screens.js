// The pages before, between and after the trials.
import { make, paragraphs, show } from "./dom.js";
import { setListener } from "./server.js";

const WELCOME = `You will hear short pieces of music and say how you like them. You need no musical training: there are no right answers.`;
const CONSENT = `Taking part is voluntary, and you can stop at any time by closing this page. Your answers are stored under a random code, with the times at which you gave them, and used for research. Your name, address or other personal data are not stored.`;

export const spelled = (code) => code.replace(/(.{4})(?=.)/g, "$1-");

// `begin` starts a new test; `resume` gets a code, and throws an error for a wrong one.
export function welcome(study, stored, { begin, resume }) {
  const problem = make("p", { className: "alert", role: "alert", hidden: true });
  const attempt = async (work) => {
    problem.hidden = true;
    try {
      await work();
    } catch (error) {
      problem.textContent = error.status ? error.message : "No connection. Try again.";
      problem.hidden = false;
    }
  };
  const agreed = make("input", { type: "checkbox", onchange: () => (start.disabled = !agreed.checked) });
  const start = make("button", { type: "button", className: "go", disabled: true, onclick: () => attempt(begin) }, "Begin");
  const code = make("input", { name: "code", maxLength: 20, autocomplete: "off", autocapitalize: "none",
    spellcheck: false, placeholder: "abcd-efgh", "aria-label": "Code" });
  const enter = make("form", { className: "code", onsubmit: (event) => {
    event.preventDefault();
    if (code.value.trim()) attempt(() => resume(code.value.trim()));
  } }, code, make("button", { className: "second" }, "Continue"));
  const again = stored && make("div", { className: "card again" },
    make("p", {}, "You have begun this test in this browser."),
    make("button", { type: "button", className: "go", onclick: () => attempt(() => resume(stored)) }, "Continue where you stopped"));
  show(
    make("h2", {}, "Welcome"),
    ...paragraphs(study.welcome ?? WELCOME),
    make("ul", { className: "facts" },
      make("li", {}, make("b", {}, `about ${study.minutes} min`), " in all"),
      make("li", {}, make("b", {}, "headphones"), " if you can"),
      make("li", {}, make("b", {}, "pause"), " whenever you like")),
    again || "",
    make("div", { className: "card" },
      make("h3", {}, "Consent"),
      ...paragraphs(study.consent ?? CONSENT),
      make("label", { className: "agree" }, agreed, make("span", {}, "I have read this, and I agree to take part.")),
      start),
    problem,
    make("details", { className: "resume" }, make("summary", {}, "I have a code from before"), enter));
}

// What the listener does next; `sort` is ratings or pairs.
export function explain(state, study) {
  return new Promise((resolve) => {
    const isPair = state.sort === "pairs";
    const isNew = state.clips.some((clip) => clip.new_seconds > 0.05);
    const steps = [
      isPair ? "Play both clips, as often as you like. The questions open when you have heard them."
        : "Play the clip, as often as you like. The questions open when you have heard it.",
      isPair ? "Choose the clip that you prefer, and say how sure you are." : "Answer each question from 1 (very low) to 5 (very high).",
    ];
    if (isNew) steps.splice(1, 0, isPair
      ? "Both clips begin with the same music. A mark shows where they start to differ: judge what comes after it."
      : "A clip begins with a bit of an existing piece. A mark shows where it is continued with new music: judge what follows.");
    if (study.attention) steps.push(isPair
      ? "Sometimes three tones interrupt a clip, to see that you are listening. Then choose the other clip."
      : "Sometimes three tones interrupt the music, to see that you are listening. Then answer 1 to every question.");
    show(
      make("h2", {}, isPair ? "Compare two clips" : "Rate a clip"),
      make("ol", { className: "steps card" }, ...steps.map((step) => make("li", {}, step))),
      state.practice ? make("p", { className: "quiet" }, "First, you practise.") : "",
      make("div", { className: "action" },
        make("button", { type: "button", className: "go", onclick: resolve }, state.practice ? "Practise" : "Go on")));
  });
}

export function practiceIsOver() {
  return new Promise((resolve) => {
    show(
      make("h2", {}, "That was the practice"),
      make("p", {}, "From now on your answers count. Trust your ears, and take your time."),
      make("div", { className: "action" },
        make("button", { type: "button", className: "go", onclick: resolve }, "Go on")));
  });
}

// A link in which names in braces are replaced by the code and by parts of this page's address.
function filled(link, code) {
  const given = new URLSearchParams(location.search);
  return link.replace(/\{([^{}]*)\}/g, (_, name) =>
    encodeURIComponent(name === "completion_code" ? code : given.get(name) ?? ""));
}

export function end(state) {
  setListener(state.listener, { finished: true });
  const code = state.completion_code;
  const copy = make("button", { type: "button", className: "second", onclick: async () => {
    try {
      await navigator.clipboard.writeText(code);
      copy.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(shown);
    }
  } }, "Copy");
  const shown = make("output", { className: "completion" }, code);
  show(
    make("div", { className: "thanks" },
      make("div", { className: "tick", "aria-hidden": "true" }),
      make("h2", {}, "Thank you!"),
      make("p", {}, "All your answers are saved."),
      make("p", { className: "quiet" }, "Your completion code"),
      make("div", { className: "code" }, shown, copy),
      state.completion_link
        ? make("a", { className: "go", href: filled(state.completion_link, code), rel: "noreferrer" }, "Finish")
        : make("p", { className: "quiet" }, "You can close this page.")),
    make("details", { className: "resume" }, make("summary", {}, "Another person takes part here"),
      make("button", { type: "button", className: "second", onclick: () => {
        setListener("");
        location.reload();
      } }, "Begin a new test")));
}
