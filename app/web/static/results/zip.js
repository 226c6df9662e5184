// A ZIP file of files that are stored as they are.

const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  for (let bit = 0; bit < 8; bit++) byte = byte & 1 ? (byte >>> 1) ^ 0xedb88320 : byte >>> 1;
  return byte;
});

const sumOf = (bytes) => ~bytes.reduce((sum, byte) => TABLE[(sum ^ byte) & 255] ^ (sum >>> 8), -1) >>> 0;

/** `files`: pairs of a name and its bytes. */
export function zipOf(files) {
  const [parts, entries] = [[], []];
  let at = 0;
  for (const [name, bytes] of files) {
    const text = new TextEncoder().encode(name);
    const head = new DataView(new ArrayBuffer(26));
    // version, flags (UTF-8), stored, time, date, checksum, sizes, length of the name
    [20, 0x800, 0, 0, 33].forEach((value, index) => head.setUint16(2 * index, value, true));
    [sumOf(bytes), bytes.length, bytes.length].forEach((value, index) => head.setUint32(10 + 4 * index, value, true));
    head.setUint16(22, text.length, true);
    const rest = new DataView(new ArrayBuffer(14)); // of an entry: its place comes last
    rest.setUint32(10, at, true);
    parts.push("PK\x03\x04", head, text, bytes);
    entries.push("PK\x01\x02\x14\0", head, rest, text);
    at += 30 + text.length + bytes.length;
  }
  const end = new DataView(new ArrayBuffer(18));
  [4, 6].forEach((place) => end.setUint16(place, files.length, true));
  end.setUint32(8, entries.reduce((sum, part) => sum + (part.byteLength ?? part.length), 0), true);
  end.setUint32(12, at, true);
  return new Blob([...parts, ...entries, "PK\x05\x06", end], { type: "application/zip" });
}
