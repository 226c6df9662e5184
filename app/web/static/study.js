// The tab Study: the address of its ZIP file, also behind a proxy, and the name of a button of Gradio.
export function start({ element }) {
  let wasRunning = false;
  const update = () => {
    const isRunning = Boolean(element.querySelector(".study-bar"));
    if (isRunning && !wasRunning) element.scrollIntoView({ block: "nearest" });
    wasRunning = isRunning;
    for (const link of element.querySelectorAll("a[data-path]:not([href])")) {
      const { root = "", api_prefix = "" } = window.gradio_config ?? {};
      link.href = `${root}${api_prefix}/file=${link.dataset.path.split("/").map(encodeURIComponent).join("/")}`;
    }
    for (const add of element.closest(".tabitem").querySelectorAll('[aria-label="common.upload"]')) {
      add.title = "Add files";
      add.setAttribute("aria-label", add.title);
    }
  };
  new MutationObserver(update).observe(element.closest(".tabitem"), { childList: true, subtree: true });
  update();
}
