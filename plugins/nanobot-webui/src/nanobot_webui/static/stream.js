// The stream of events. One tab of the browser reads it and gives the events to the others, because
// browsers open only six connections to a server.

import { get } from "./api.js";

const SILENCE_MS = 40_000;
const LONGEST_MS = 30_000;

/**
 * @typedef {{s?: string, put?: {id: string, in?: string, place: number, html: string}[], drop?: string[], busy?: boolean, sessions?: boolean}} Happening
 */

export class Stream {
  /**
   * @param {string} after id of the last event that the page contains
   * @param {(event: Happening) => void} onEvent
   * @param {() => Promise<string>} onReset loads the page's content again and returns its event
   * @param {(state: "connected" | "connecting" | "lost") => void} onState
   */
  constructor(after, onEvent, onReset, onState) {
    this.after = after;
    this.onEvent = onEvent;
    this.onReset = onReset;
    this.onState = onState;
    this.delay = 500;
    this.isLeader = false;
    /** @type {EventSource | null} */
    this.source = null;
    this.tabs = new BroadcastChannel("nanobot-events");
    this.tabs.onmessage = (message) => this.hear(message.data);
    this.turn = Promise.resolve();
  }

  start() {
    this.onState("connecting");
    if (navigator.locks) {
      navigator.locks.request("nanobot-events", () => {
        this.lead();
        return new Promise(() => {}); // until the tab is closed
      });
      // Events that happened before this tab listened to the leading one.
      this.queue(() => this.catchUp());
    } else this.lead();
    addEventListener("online", () => this.isLeader && this.connect());
  }

  /** Events and reloads happen one after the other. @param {() => Promise<void>} work */
  queue(work) {
    this.turn = this.turn.then(work).catch(() => this.onState("lost"));
  }

  lead() {
    this.isLeader = true;
    this.queue(async () => this.connect());
  }

  connect() {
    clearTimeout(this.again);
    this.source?.close();
    const source = new EventSource(`/web/events?after=${encodeURIComponent(this.after)}`);
    this.source = source;
    source.onopen = () => {
      this.delay = 500;
      this.tell({ state: "connected" });
      this.watch();
    };
    source.onmessage = (event) => {
      this.watch();
      this.tell({ id: event.lastEventId, data: JSON.parse(event.data) });
    };
    source.addEventListener("reset", (event) => this.tell({ id: event.lastEventId, reset: true }));
    // A response other than 200 ends an EventSource for good, so it is always made again.
    source.onerror = () => this.retry();
    this.watch();
  }

  watch() {
    clearTimeout(this.silence);
    this.silence = setTimeout(() => this.retry(), SILENCE_MS);
  }

  retry() {
    this.source?.close();
    this.source = null;
    clearTimeout(this.silence);
    clearTimeout(this.again);
    this.tell({ state: "lost" });
    this.again = setTimeout(() => this.connect(), this.delay * (0.75 + Math.random() / 2));
    this.delay = Math.min(this.delay * 2, LONGEST_MS);
    fetch("/web/since?after=").then((answer) => answer.status === 401 && location.assign("/login"), () => {});
  }

  /** @param {object} news */
  tell(news) {
    this.tabs.postMessage(news);
    this.hear(news);
  }

  /** @param {any} news */
  hear(news) {
    if (news.state) this.onState(news.state);
    else if (news.reset) this.queue(() => this.reload());
    else if (news.data) this.queue(async () => this.apply(news.id, news.data));
  }

  /** @param {string} id @param {Happening} data */
  apply(id, data) {
    const [epoch, number] = id.split("-");
    const [known, last] = this.after.split("-");
    if (epoch === known && Number(number) <= Number(last)) return;
    this.onEvent(data);
    this.after = id;
  }

  async reload() {
    this.after = await this.onReset();
    if (this.isLeader && this.source) this.connect();
  }

  async catchUp() {
    const found = await get("/web/since", { after: this.after });
    if (found.reset) await this.reload();
    else for (const event of found.events) this.apply(event.id, event.data);
    if (!this.isLeader) this.onState("connected");
  }
}
