// The tab About: its example of a script gets the address of this page.
export function start({ element }) {
  // the address of this page, and its login, which scripts need too
  const address = location.origin + location.pathname.replace(/\/$/, "");
  const login = window.gradio_config?.username;
  const auth = login ? `, auth=(${JSON.stringify(login)}, "PASSWORD")` : "";
  for (const where of element.querySelectorAll("[data-client]")) {
    where.textContent = JSON.stringify(address) + auth;
  }
}
