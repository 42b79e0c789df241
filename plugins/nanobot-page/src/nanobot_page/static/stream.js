// The stream of events. One tab of the browser reads it and gives the events to the others, because
// browsers open only six connections to a server.

import { get } from "./api.js";

const NAME = "nanobot-events";
const SILENCE_MS = 40_000;
const LONGEST_MS = 30_000;
const HIDDEN_MS = 30_000;
const ANSWER_MS = 300;

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
    this.isLed = false;
    /** @type {EventSource | null} */
    this.source = null;
    /** @type {AbortController | undefined} */
    this.waiting = undefined;
    this.tabs = new BroadcastChannel(NAME);
    this.tabs.onmessage = (message) => this.hear(message.data);
    this.turn = Promise.resolve();
  }

  start() {
    this.onState("connecting");
    addEventListener("online", () => this.isLeader && this.connect());
    // Without a secure context there are no locks, and every tab reads the stream itself.
    if (!navigator.locks) return this.lead();
    this.wait();
    // Events that happened before this tab listened to the leading one.
    this.queue(() => this.catchUp());
    document.addEventListener("visibilitychange", () => this.seen());
  }

  /** Waits until no other tab leads, or takes the lead from it. */
  wait(isTaken = false) {
    this.waiting?.abort();
    this.waiting = isTaken ? undefined : new AbortController();
    const options = isTaken ? { steal: true } : { signal: this.waiting?.signal };
    const lead = () => new Promise(() => this.lead()); // until the tab is closed, or another takes the lead
    navigator.locks.request(NAME, options, lead).catch(() => {
      if (!this.isLeader) return;
      this.isLeader = false;
      this.disconnect();
      this.wait();
    });
  }

  /** The tab is shown or hidden: browsers suspend hidden ones, so one that is seen leads. */
  seen() {
    clearTimeout(this.leaving);
    if (!document.hidden) this.claim();
    else if (this.isLeader) this.leaving = setTimeout(() => this.tabs.postMessage({ offered: true }), HIDDEN_MS);
  }

  /** Leads, unless a tab that is seen does. */
  claim() {
    if (this.isLeader) return this.source || this.connect();
    this.isLed = false;
    this.tabs.postMessage({ asked: true });
    setTimeout(() => !this.isLed && !this.isLeader && !document.hidden && this.wait(true), ANSWER_MS);
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
    if (!this.isLeader) return;
    this.disconnect();
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
    source.addEventListener("beat", () => this.watch());
    source.addEventListener("reset", () => this.tell({ reset: true }));
    // A response other than 200 ends an EventSource for good, so it is always made again.
    source.onerror = () => this.retry();
    this.watch();
  }

  disconnect() {
    clearTimeout(this.silence);
    clearTimeout(this.again);
    this.source?.close();
    this.source = null;
  }

  watch() {
    clearTimeout(this.silence);
    this.silence = setTimeout(() => this.retry(), SILENCE_MS);
  }

  retry() {
    this.disconnect();
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
    if (news.asked) this.isLeader && !document.hidden && this.tabs.postMessage({ led: true });
    else if (news.led) this.isLed = true;
    else if (news.offered) document.hidden || this.claim();
    else if (news.state) this.onState(news.state);
    else if (news.reset) this.queue(() => this.reload());
    else if (news.data) this.queue(() => this.apply(news.id, news.data));
  }

  /** Applies an event once, after those before it. @param {string} id @param {Happening} data */
  async apply(id, data) {
    const [epoch, number] = id.split("-");
    const [known, last] = this.after.split("-");
    if (epoch === known && Number(number) <= Number(last)) return;
    if (epoch !== known || Number(number) > Number(last) + 1) return this.catchUp();
    this.after = id;
    this.onEvent(data);
  }

  async reload() {
    this.after = await this.onReset();
  }

  /** Gets the events that this tab has missed. */
  async catchUp() {
    const found = await get("/web/since", { after: this.after });
    if (found.reset) await this.reload();
    for (const event of found.events ?? []) {
      this.after = event.id;
      this.onEvent(event.data);
    }
    if (!this.isLeader) this.onState("connected");
  }
}
