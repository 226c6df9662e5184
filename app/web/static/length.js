// Says that a length was typed that is out of range, which Gradio replaces by the nearest length.
export function start({ element }) {
  const note = element.appendChild(document.createElement("p"));
  note.setAttribute("role", "status");
  const column = element.closest(".length");
  const read = ({ target }) => {
    if (!target.matches("input[type=number]") || target.value === "") return;
    const [typed, least, most] = [target.value, target.min, target.max].map(Number);
    const nearest = Math.min(Math.max(typed, least), most);
    note.textContent = typed === nearest ? "" : `Length was ${typed}, expected ${least} to ${most}; it is now ${nearest}.`;
  };
  column.addEventListener("blur", read, true); // before Gradio changes the value
  column.addEventListener("input", () => (note.textContent = ""), true);
}
