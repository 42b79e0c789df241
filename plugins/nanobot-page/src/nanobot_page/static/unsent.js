// Messages that the gateway has not confirmed. They are shown, kept across reloads of the page, and
// sent until the gateway has stored them, which it does once for each id.

import { Refused, post } from "./api.js";
import { insert } from "./log.js";

const PREFIX = "nanobot unsent ";
const LAST = Number.MAX_SAFE_INTEGER;
const LONGEST_MS = 10_000;
const KEPT_MS = 24 * 3_600_000;
const log = /** @type {HTMLElement} */ (document.getElementById("log"));
/** @type {Set<() => void>} */
const sleepers = new Set();
/** @type {Set<string>} */
const open = new Set();
/** @type {Promise<void>} */
let line = Promise.resolve();

/** @typedef {{id: string, session: string, text: string, files: {id: string, name: string}[], at: number}} Unsent */

/** @param {Unsent} message @param {(message: Unsent) => void} onTakenBack */
function show(message, onTakenBack) {
  if (document.getElementById(`u-${message.id}`)) return; // the gateway has it and has shown it
  const element = document.createElement("article");
  const bubble = document.createElement("div");
  const state = document.createElement("p");
  const back = document.createElement("button");
  element.id = `u-${message.id}`;
  element.className = "message user unsent";
  element.dataset.place = String(LAST);
  element.setAttribute("aria-label", "You, not sent yet");
  bubble.className = "bubble plain-text";
  bubble.textContent = [message.text, ...message.files.map((file) => file.name)].filter(Boolean).join("\n");
  state.className = "quiet sent";
  state.textContent = "sending";
  back.className = "plain";
  back.textContent = "Take back";
  back.hidden = true;
  back.onclick = () => onTakenBack(message);
  element.append(bubble, state, back);
  insert(log, element);
}

/** @param {Unsent} message */
function keep(message) {
  try {
    localStorage.setItem(PREFIX + message.id, JSON.stringify(message));
  } catch {
    // The storage is full or switched off: the message is sent all the same, unless the page is closed.
  }
}

/** @param {string} id */
function close(id) {
  open.delete(id);
  localStorage.removeItem(PREFIX + id);
}

/** @param {Unsent} message @param {boolean} isTakenBack */
function forget(message, isTakenBack) {
  close(message.id);
  const element = document.getElementById(`u-${message.id}`);
  if (isTakenBack || element?.matches(".unsent")) element?.remove();
}

/** Waits, but not longer than until the gateway can be reached. @param {number} delay */
function pause(delay) {
  return new Promise((resolve) => {
    const wake = () => (sleepers.delete(wake), resolve(undefined));
    sleepers.add(wake);
    setTimeout(wake, delay);
  });
}

/** To be called when the gateway can be reached: what waits is sent now. */
export function wakeUp() {
  for (const wake of sleepers) wake();
}

/** Lets go of the bubble of a message that the gateway has: events show it from now on. @param {string} id */
function confirm(id) {
  const element = document.getElementById(`u-${id}`);
  if (!element?.matches(".unsent")) return;
  element.classList.remove("unsent");
  element.setAttribute("aria-label", "You");
  element.querySelector("button")?.remove();
  /** @type {HTMLElement} */ (element.querySelector(".sent")).textContent = "waiting";
}

/** @param {string} id */
function showWaiting(id) {
  const element = document.getElementById(`u-${id}`);
  if (!element?.matches(".unsent")) return;
  /** @type {HTMLElement} */ (element.querySelector(".sent")).textContent = "not sent yet; waits for the gateway";
  for (const back of element.querySelectorAll("button")) back.hidden = false;
}

/**
 * Sends a message until the gateway has stored it; a repeated one is stored once.
 * @param {Unsent} message
 * @throws {Refused} the gateway does not take it
 */
async function transmit(message) {
  const body = { id: message.id, session: message.session, text: message.text, files: message.files.map((file) => file.id) };
  for (let delay = 500; open.has(message.id); delay = Math.min(delay * 2, LONGEST_MS)) {
    try {
      const found = await post("/web/messages", body);
      close(message.id);
      if (found.stored) confirm(message.id);
    } catch (error) {
      if (error instanceof Refused && error.status < 500) {
        forget(message, true);
        throw error;
      }
      open.forEach(showWaiting); // those that wait for this one too
      await pause(delay);
    }
  }
  // It was stored before, or taken back.
  forget(message, false);
}

/** Messages are sent one after the other. @param {Unsent} message @param {(message: Unsent) => void} onTakenBack */
function deliver(message, onTakenBack) {
  open.add(message.id);
  show(message, (taken) => {
    forget(taken, true);
    wakeUp();
    onTakenBack(taken);
  });
  const sent = line.then(() => transmit(message));
  line = sent.catch(() => {});
  return sent;
}

/**
 * @param {{session: string, text: string, files: {id: string, name: string}[]}} message
 * @param {(message: Unsent) => void} onTakenBack gives a message back to the person who wrote it
 * @throws {Refused} the gateway does not take it
 */
export async function send(message, onTakenBack) {
  const unsent = { ...message, id: crypto.randomUUID(), at: Date.now() };
  keep(unsent);
  await deliver(unsent, onTakenBack);
}

/** Sends what was not sent when a page of this chat was closed. @param {string} session @param {(message: Unsent) => void} onTakenBack */
export function resume(session, onTakenBack) {
  const kept = Object.keys(localStorage)
    .filter((key) => key.startsWith(PREFIX))
    .map((key) => /** @type {Unsent} */ (JSON.parse(localStorage.getItem(key) ?? "{}")))
    .sort((one, other) => one.at - other.at);
  for (const message of kept.filter((each) => each.session === session)) {
    const isOld = Date.now() - message.at > KEPT_MS;
    if (isOld) forget(message, true);
    if (isOld) onTakenBack(message);
    else deliver(message, onTakenBack).catch(() => onTakenBack(message));
  }
}
