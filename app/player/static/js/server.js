// Calls of functions on the page's server, and the addresses of its files.

const OFFLINE = "This browser is offline: try again when it is connected.";

/** An error whose message is a sentence from the server for the user. */
class Refusal extends Error {}

/** The path of a file that the server makes: {job, variation, kind, without}; `server`: {file} as Gradio passes it. */
export async function pathOf(server, request) {
  const answer = await server.file(request);
  if (answer?.path) return answer.path;
  throw answer?.error ? new Refusal(answer.error) : new Error("the server has sent no path");
}

/** The message for the user about an error: the server's sentence, or else `otherwise`. */
export const sentenceOf = (error, otherwise) => (error instanceof Refusal ? error.message : navigator.onLine ? otherwise : OFFLINE);

export function fileUrl(path) {
  const { root = "", api_prefix = "" } = window.gradio_config ?? {};
  return `${root}${api_prefix}/file=${path.split("/").map(encodeURIComponent).join("/")}`;
}
