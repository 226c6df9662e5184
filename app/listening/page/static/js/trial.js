// A trial: clips, questions that open when the clips have been heard, and the button to go on.
import { Clip } from "./clip.js";
import { make, show } from "./dom.js";
import { Outbox } from "./outbox.js";
import { forgetClips, loadClip, post } from "./server.js";

const SCALE = [1, 2, 3, 4, 5];
const ENDS = ["very low", "very high"];
const TEXTS = {
  coherence: ["Coherence", "Does the new music fit what comes before it?", "Does the music hold together?"],
  structure: ["Structure", "Is it well built, with phrases and ideas that return or develop?"],
  creativity: ["Creativity", "Is it inventive and interesting?"],
  musicality: ["Musicality", "All in all, is it good music?"],
};
const SIDES = ["first", "second"];
const STATUS = {
  saving: "Saving …",
  saved: "Saved",
  offline: "Not saved yet: no connection. Trying again …",
};

// A row of choices; `choose` gets the value.
function choices(name, legend, options, ends, chosen, choose) {
  const inputs = options.map(([value, label]) =>
    make("label", {},
      make("input", { type: "radio", name, value, checked: String(value) === String(chosen ?? ""),
        onchange: () => choose(value) }),
      make("span", {}, label)));
  return make("fieldset", { className: `scale ${name}` }, make("legend", {}, ...legend),
    make("div", { className: "options" }, ...inputs),
    ends ? make("div", { className: "ends", "aria-hidden": "true" }, ...ends.map((end) => make("span", {}, end))) : null);
}

// Shows the current trial of `state`; the promise is the state after it.
export function runTrial(state, study) {
  return new Promise((resolve) => new Trial(state, study, resolve));
}

class Trial {
  constructor(state, study, done) {
    Object.assign(this, { state, study, done });
    this.isPair = state.sort === "pairs";
    this.began = performance.now();
    this.answers = {};
    for (const [question, told] of Object.entries(state.answers)) this.answers[question] = { ...told };
    this.outbox = new Outbox((status, message) => this.report(status, message));
    this.clips = state.clips.map((clip, at) => new Clip({
      label: this.isPair ? `Clip ${"AB"[at]}` : "Clip",
      seconds: clip.seconds,
      newSeconds: clip.new_seconds,
      needed: study.heard * clip.seconds,
      load: () => loadClip(state.position, SIDES[at]),
      onheard: () => this.update(),
    }));
    this.build();
    this.loadNext();
  }

  get isOpen() {
    return this.clips.every((clip) => clip.isHeard);
  }

  get isAnswered() {
    return this.state.questions.every((question) => {
      const told = this.answers[question];
      return told?.answer && (!this.isPair || told.confidence);
    });
  }

  build() {
    const { state } = this;
    const title = this.isPair ? "Which continuation is better?" : "How is this music?";
    const plain = this.isPair ? "Which clip is better?" : title;
    const isNew = state.clips.some((clip) => clip.new_seconds > 0.05);
    this.hint = make("p", { className: "hint" });
    this.next = make("button", { type: "button", className: "go", onclick: () => this.advance() }, "Next");
    this.form = make("form", { className: "questions", onsubmit: (event) => event.preventDefault() },
      ...(this.isPair ? this.pair() : state.questions.map((question) => this.rating(question, isNew))));
    const players = make("div", { className: this.isPair ? "clips pair" : "clips" },
      ...this.clips.map((clip) => clip.element));
    const tones = this.isPair ? "If three tones interrupt a clip, choose the other clip."
      : "If three tones interrupt the music, answer 1 to every question.";
    show(
      state.practice ? make("p", { className: "badge" }, "Practice: this answer does not count") : "",
      make("h2", {}, isNew ? title : plain), players, this.hint, this.form,
      this.study.attention ? make("p", { className: "quiet tones" }, tones) : "",
      make("div", { className: "action" }, this.next));
    this.update();
  }

  rating(question, isNew) {
    const [name, text, withoutBeginning] = TEXTS[question];
    const legend = [make("b", {}, name), " ", make("span", {}, (!isNew && withoutBeginning) || text)];
    return choices(question, legend, SCALE.map((value) => [value, value]), ENDS,
      this.answers[question]?.answer, (value) => this.answer(question, { answer: value }));
  }

  pair() {
    const told = this.answers.preference ?? {};
    const choose = (part) => this.answer("preference", part);
    return [
      choices("preference", [make("b", {}, "I prefer")], [["first", "A"], ["second", "B"]], null,
        told.answer, (answer) => choose({ answer })),
      choices("confidence", [make("b", {}, "How sure are you?")], SCALE.map((value) => [value, value]),
        ["guessing", "certain"], told.confidence, (confidence) => choose({ confidence })),
    ];
  }

  answer(question, part) {
    const told = (this.answers[question] = { ...this.answers[question], ...part });
    this.update();
    if (this.isPair && !(told.answer && told.confidence)) return;
    const sent = { trial: this.state.position, question, answer: String(told.answer),
      seconds: (performance.now() - this.began) / 1000 };
    if (this.isPair) sent.confidence = told.confidence;
    this.clips.forEach((clip, at) => (sent[`heard_${SIDES[at]}`] = clip.played));
    this.outbox.put(sent);
    this.update();
  }

  update() {
    const left = Math.ceil(this.clips.reduce((sum, clip) => sum + clip.left, 0));
    const fields = this.form.querySelectorAll("fieldset");
    for (const field of fields) field.disabled = !this.isOpen;
    this.form.classList.toggle("closed", !this.isOpen);
    const which = this.isPair ? "both clips" : "the clip";
    const hint = this.isOpen ? "" : `Listen to ${which} first: ${left} s to go.`;
    if (this.hint.textContent !== hint) this.hint.textContent = hint;
    this.hint.classList.toggle("gone", this.isOpen);
    this.next.disabled = !(this.isOpen && this.isAnswered && this.outbox.empty) || this.isLeaving;
  }

  report(status, message) {
    const place = document.getElementById("saved");
    place.textContent = STATUS[status] ?? message;
    place.className = status;
    this.update?.call(this);
  }

  async advance() {
    this.isLeaving = true;
    this.update();
    for (const clip of this.clips) clip.pause();
    try {
      const state = await post("next", { trial: this.state.position });
      for (const clip of this.clips) clip.close();
      forgetClips(state.position);
      this.done(state);
    } catch (error) {
      this.isLeaving = false;
      this.report("refused", error.status ? error.message : "No connection. Press Next again.");
    }
  }

  async loadNext() {
    await Promise.allSettled(SIDES.slice(0, this.clips.length).map((side) => loadClip(this.state.position, side)));
    for (const side of this.state.next_sides) loadClip(this.state.position + 1, side).catch(() => {});
  }
}
