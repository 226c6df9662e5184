// Calls of functions on the page's server, and the addresses of its files.

const OFFLINE = "This browser is offline: try again when it is connected.";

/** An error whose message is a sentence from the server for the user. */
class Refusal extends Error {}

export class Server {
  /** `functions`: {mix, file} as Gradio passes them; undefined in a page without a server. */
  constructor(functions) {
    this.functions = functions;
  }

  get canMix() {
    return typeof this.functions?.mix === "function";
  }

  /** The answer about a file that the server has made, with its path. */
  async ask(name, request) {
    const answer = await this.functions[name](request);
    if (answer?.path) return answer;
    throw answer?.error ? new Refusal(answer.error) : new Error(`${name}: no path`);
  }
}

/** The message for the user about an error: the server's sentence, or else `otherwise`. */
export const sentenceOf = (error, otherwise) => (error instanceof Refusal ? error.message : navigator.onLine ? otherwise : OFFLINE);

export function fileUrl(path) {
  const { root = "", api_prefix = "" } = window.gradio_config ?? {};
  return `${root}${api_prefix}/file=${path.split("/").map(encodeURIComponent).join("/")}`;
}
