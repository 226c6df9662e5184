// The About tab: its example script shows the address of this page, and the login that scripts need.
export function start({ element }) {
  const address = location.origin + location.pathname.replace(/\/$/, "");
  const login = window.gradio_config?.username;
  const auth = login ? `, auth=(${JSON.stringify(login)}, "PASSWORD")` : "";
  for (const where of element.querySelectorAll("[data-client]")) {
    where.textContent = JSON.stringify(address) + auth;
  }
}
