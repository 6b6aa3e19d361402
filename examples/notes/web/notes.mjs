// Shared notes in a page: Yjs merges, the group brings every update to everyone, in causal order.
// The same group and the same documents as examples/notes/notes.py (pycrdt is Yjs in Rust).
import { Whence, payload } from "/whence.js";
import * as Y from "yjs";

const doc = new Y.Doc(); // what this page shows
const theirs = new Y.Doc(); // what the group has: the difference is what it lacks
const notes = doc.getText("notes");
const area = document.getElementById("notes");
const state = document.getElementById("state");

const saved = localStorage.getItem("notes");
if (saved) Y.applyUpdate(doc, bytes(saved), "group"); // perhaps written while offline, in an earlier visit
show();

const group = new Whence(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws`, {
  token: location.hash.slice(1) || null,
  onMessage(message) {
    const update = payload(message);
    Y.applyUpdate(theirs, update);
    Y.applyUpdate(doc, update, "group"); // twice does no harm
  },
  async onState(now) {
    state.textContent = state.dataset.state = now;
    if (now === "online") giveWhatIsMissing(await group.status());
  },
});

doc.on("update", (update, from) => {
  localStorage.setItem("notes", text(Y.encodeStateAsUpdate(doc)));
  if (from === "group") show();
  else group.broadcast(update);
});

area.addEventListener("input", () => {
  const before = notes.toString();
  const after = area.value;
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start++;
  let end = 0;
  while (end < Math.min(before.length, after.length) - start && before.at(-1 - end) === after.at(-1 - end)) end++;
  doc.transact(() => {
    notes.delete(start, before.length - start - end);
    notes.insert(start, after.slice(start, after.length - end));
  });
});

/** Once the log has been read, send what it lacks: edits of an earlier visit that never left. */
function giveWhatIsMissing(status) {
  if (group.after < status.log.next - 1) return setTimeout(() => giveWhatIsMissing(status), 50);
  const missing = Y.encodeStateAsUpdate(doc, Y.encodeStateVector(theirs));
  const nothing = Y.encodeStateAsUpdate(new Y.Doc());
  if (text(missing) !== text(nothing) && group.unsent.length === 0) group.broadcast(missing);
}

function show() {
  const { selectionStart, selectionEnd } = area;
  area.value = notes.toString();
  area.setSelectionRange(selectionStart, selectionEnd);
}

function text(update) {
  return btoa(Array.from(update, (byte) => String.fromCharCode(byte)).join(""));
}

function bytes(coded) {
  return Uint8Array.from(atob(coded), (letter) => letter.charCodeAt(0));
}
