// What belongs to the whole page: files that are dropped on it, how keys move through it, and tooltips.

import { acceptDrops } from "./drop.js";
import { roveInGroups } from "./groups.js";
import { showTitles } from "./titles.js";

export function start(_page, titles) {
  acceptDrops();
  roveInGroups();
  showTitles(titles);
}
