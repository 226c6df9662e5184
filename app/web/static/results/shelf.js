// The results that this browser keeps, in its IndexedDB: at most 50 MB, of which the oldest without a star go.

const MOST_BYTES = 50e6;
const opening = new Promise((resolve, reject) => {
  const request = indexedDB.open("relpe", 1); // throws where storage is forbidden
  request.onupgradeneeded = () => request.result.createObjectStore("cards", { keyPath: "id" });
  request.onsuccess = () => resolve(request.result);
  request.onerror = request.onblocked = () => reject(request.error);
});
opening.catch(() => {}); // each call says so

async function use(mode, call) {
  const transaction = (await opening).transaction("cards", mode);
  const request = call(transaction.objectStore("cards"));
  await new Promise((resolve, reject) => {
    transaction.oncomplete = resolve;
    transaction.onabort = transaction.onerror = () => reject(transaction.error);
  });
  return request.result;
}

const bytesOf = (card) => card.midi.size + card.settings.length + card.roll.length;

/** All cards, the newest first. */
export const load = async () => (await use("readonly", (cards) => cards.getAll())).sort((one, other) => other.when - one.when);

/** Keeps a card; returns the ids of older ones that had to go. */
export async function keep(card) {
  await use("readwrite", (cards) => cards.put(card));
  const all = (await load()).sort((one, other) => other.star - one.star);
  let bytes = 0;
  const gone = all.filter((one) => (bytes += bytesOf(one)) > MOST_BYTES && one.id !== card.id).map(({ id }) => id);
  for (const id of gone) await use("readwrite", (cards) => cards.delete(id));
  return gone;
}

/** Deletes all cards. */
export const clear = () => use("readwrite", (cards) => cards.clear());
