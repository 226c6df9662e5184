// The form of the login.
import { post } from "./server.js";

const form = document.querySelector("form");
const problem = form.querySelector(".alert");

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    await post("login", Object.fromEntries(new FormData(form)));
    location.reload();
  } catch (error) {
    problem.textContent = error.status ? error.message : "No connection. Try again.";
    problem.hidden = false;
  }
});
