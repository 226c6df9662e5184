// Light or dark colours, as the browser is set; loaded before the page is shown.
{
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => document.documentElement.classList.toggle("dark", dark.matches);
  dark.addEventListener("change", apply);
  apply();
}
