// Reads the frames of docs/wire-vectors.json with a decoder of its own, and compares what they say:
//
//   node examples/wire/check.mjs docs/wire-vectors.json
//
// A frame is four bytes of length (big-endian), a byte of type, and a body in MessagePack. Integers are BigInt here:
// sessions and nonces have 62 bits.
import { readFileSync } from "node:fs";

const TYPES = [, "HELLO", "DATA", "ACK", "PING", "BYE", "ERROR", "CHALLENGE", "ANSWER", "KNOWN", "MEMBERS", "ROOM", "CLOCK", "BATCH"];

function reader(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;
  const take = (count) => bytes.subarray(at, (at += count));
  const number = (count) => {
    let value = 0n;
    for (const byte of take(count)) value = (value << 8n) | BigInt(byte);
    return value;
  };
  const signed = (count) => BigInt.asIntN(8 * count, number(count));
  const text = (count) => new TextDecoder().decode(take(count));
  const hex = (count) => ({ hex: Buffer.from(take(count)).toString("hex") });
  const list = (count) => Array.from({ length: Number(count) }, () => value());
  const map = (count) => Object.fromEntries(Array.from({ length: Number(count) }, () => [String(value()), value()]));
  function value() {
    const tag = bytes[at++];
    if (tag < 0x80) return BigInt(tag);
    if (tag < 0x90) return map(tag & 0x0f);
    if (tag < 0xa0) return list(tag & 0x0f);
    if (tag < 0xc0) return text(tag & 0x1f);
    if (tag >= 0xe0) return BigInt(tag - 256);
    switch (tag) {
      case 0xc0: return null;
      case 0xc2: return false;
      case 0xc3: return true;
      case 0xc4: case 0xc5: case 0xc6: return hex(Number(number(1 << (tag - 0xc4))));
      case 0xcb: { const found = view.getFloat64(at); at += 8; return found; }
      case 0xcc: case 0xcd: case 0xce: case 0xcf: return number(1 << (tag - 0xcc));
      case 0xd0: case 0xd1: case 0xd2: case 0xd3: return signed(1 << (tag - 0xd0));
      case 0xd9: case 0xda: case 0xdb: return text(Number(number(1 << (tag - 0xd9))));
      case 0xdc: case 0xdd: return list(number(tag === 0xdc ? 2 : 4));
      case 0xde: case 0xdf: return map(number(tag === 0xde ? 2 : 4));
      default: throw new Error(`tag ${tag.toString(16)} is not in the format`);
    }
  }
  return { value, rest: () => bytes.length - at };
}

const show = (value) => JSON.stringify(value, (_, each) => (typeof each === "bigint" ? `${each}n` : each));

// JSON.parse would round large integers: take every whole number from the text (strings are left alone), as a BigInt.
const quoted = (text) => text.replace(/"(?:[^"\\]|\\.)*"|-?\d+(?=\s*[,\]}])/g, (found) => (found[0] === '"' ? found : `"int ${found}"`));
const whole = (value) =>
  typeof value === "string" && /^int -?\d+$/.test(value) ? BigInt(value.slice(4))
    : Array.isArray(value) ? value.map(whole)
    : value && typeof value === "object" ? Object.fromEntries(Object.entries(value).map(([k, v]) => [k, whole(v)]))
    : value;

const vectors = whole(JSON.parse(quoted(readFileSync(process.argv[2], "utf8"))));
let wrong = 0;
for (const { name, type, hex, body } of vectors) {
  const bytes = Uint8Array.from(Buffer.from(hex, "hex"));
  const length = new DataView(bytes.buffer).getUint32(0);
  const found = reader(bytes.subarray(5));
  const said = bytes.length > 5 ? found.value() : null;
  if (length !== bytes.length - 4 || TYPES[bytes[4]] !== type || show(said) !== show(body) || (said !== null && found.rest())) {
    wrong += 1;
    console.log(`${name}: read ${show(said)}, wanted ${show(body)}`);
  }
}
console.log(wrong ? `${wrong} of ${vectors.length} frames differ` : `${vectors.length} frames read alike`);
process.exit(wrong ? 1 : 0);
