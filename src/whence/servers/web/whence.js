// A client of `whence gateway` for browsers (and Node 22): reconnects, resumes, keeps what it could not send.
//
//   const group = new Whence("ws://127.0.0.1:7480/ws", { onMessage(m) { console.log(m.origin, m.text) } });
//   await group.broadcast("hello");          // resolves with the id when the node has it; waits while offline
//
// Messages come in causal order. Over a restart of the gateway's node the log is read again from its beginning:
// `id`, a text, tells a message that has come before. A broadcast has a key, so that one that is sent again is one message.
export class Whence {
  constructor(url, { token = null, onMessage = () => {}, onMissed = () => {}, onState = () => {}, after = 0, epoch = "" } = {}) {
    Object.assign(this, { url, token, onMessage, onMissed, onState, after, epoch });
    this.waiting = new Map(); // ref -> {request, resolve, reject}: sent again after a reconnection until answered
    this.nextRef = 1;
    this.backoffMs = 100;
    this.closed = false;
    this._connect();
    // A browser that knows that it is offline says so long before a connection notices.
    globalThis.addEventListener?.("offline", () => this.socket?.close());
    globalThis.addEventListener?.("online", () => this._connect());
  }

  /** Broadcast text (or bytes, as a Uint8Array); resolves with the message's id. */
  broadcast(payload, { key = null, copies = 0 } = {}) {
    const body = typeof payload === "string" ? { text: payload } : { base64: base64(payload) };
    return this._ask({ op: "broadcast", key: key ?? crypto.randomUUID(), copies, ...body });
  }

  status() {
    return this._ask({ op: "status" });
  }

  /** What was not answered yet: what a page that is closed now would lose, unless it keeps it. */
  get unsent() {
    return [...this.waiting.values()].map((each) => each.request).filter((each) => each.op === "broadcast");
  }

  close() {
    this.closed = true;
    this.socket?.close();
  }

  _ask(request) {
    request.ref = this.nextRef++;
    return new Promise((resolve, reject) => {
      this.waiting.set(request.ref, { request, resolve, reject });
      if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(request));
    });
  }

  _connect() {
    const connected = this.socket && this.socket.readyState <= WebSocket.OPEN;
    if (this.closed || connected || globalThis.navigator?.onLine === false) return;
    const socket = new WebSocket(this.url, this.token ? ["whence", `token.${this.token}`] : ["whence"]);
    this.socket = socket;
    socket.onopen = () => {
      this.backoffMs = 100;
      socket.send(JSON.stringify({ op: "read", after: this.after, epoch: this.epoch }));
      for (const { request } of this.waiting.values()) socket.send(JSON.stringify(request));
      this.onState("online");
    };
    socket.onmessage = (event) => this._hear(JSON.parse(event.data));
    socket.onclose = () => {
      if (this.socket !== socket) return;
      this.onState("offline");
      setTimeout(() => this._connect(), this.backoffMs * (0.5 + Math.random()));
      this.backoffMs = Math.min(2 * this.backoffMs, 5000);
    };
  }

  _hear(document) {
    if (document.message) {
      const message = document.message;
      this.after = message.lsn;
      this.onMessage(message);
    } else if (document.missed) {
      this.onMissed(document.missed);
    } else if (document.begin) {
      this.epoch = document.begin.epoch;
      this.after = document.begin.lsn - 1;
    } else if (this.waiting.has(document.ref)) {
      const { resolve, reject } = this.waiting.get(document.ref);
      this.waiting.delete(document.ref);
      if (document.error) reject(new Error(`${document.error}. ${document.fix}`));
      else resolve(document.ok);
    }
  }
}

/** The bytes of a message: of its text, or of its base64. */
export function payload(message) {
  if (message.text !== undefined) return new TextEncoder().encode(message.text);
  return Uint8Array.from(atob(message.base64), (letter) => letter.charCodeAt(0));
}

function base64(bytes) {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text);
}
