// What belongs to the whole page: files that are dropped on it, and how keys move through it.

import { acceptDrops } from "./drop.js";
import { roveInGroups } from "./groups.js";

export function start() {
  acceptDrops();
  roveInGroups();
}
