// Sends answers one after the other, and tries again until the server has written them.
import { Refused, post } from "./server.js";

const WAIT = 2000;

export class Outbox {
  // `onchange` gets "saving", "saved", "offline" or "refused", and a message.
  constructor(onchange) {
    this.onchange = onchange;
    this.waiting = new Map(); // the latest answer to each question
    this.sending = null;
  }

  put(answer) {
    this.waiting.set(answer.question, answer);
    this.sending ??= this.send().finally(() => (this.sending = null));
  }

  get empty() {
    return this.waiting.size === 0;
  }

  async send() {
    this.onchange("saving");
    while (!this.empty) {
      const [question, answer] = this.waiting.entries().next().value;
      try {
        await post("answers", answer);
        if (this.waiting.get(question) === answer) this.waiting.delete(question);
      } catch (error) {
        if (error instanceof Refused && error.status < 500 && error.status !== 429) {
          this.waiting.clear();
          this.onchange("refused", error.message);
          return;
        }
        this.onchange("offline");
        await new Promise((resolve) => setTimeout(resolve, WAIT));
      }
    }
    this.onchange("saved");
  }
}
