// The page of a chat.

import { addCopyButtons, startActions } from "./actions.js";
import { announce, announceAnswer, announceWork } from "./announce.js";
import { alarm, get } from "./api.js";
import { startComposer, stop } from "./composer.js";
import * as complete from "./complete.js";
import * as log from "./log.js";
import { changed, startScrolling } from "./scroll.js";
import { sessionsChanged, startSessions } from "./sessions.js";
import { Stream } from "./stream.js";
import { wakeUp } from "./unsent.js";

const chat = /** @type {HTMLElement} */ (document.getElementById("chat"));
const older = /** @type {HTMLButtonElement} */ (document.getElementById("older"));
const scroller = /** @type {HTMLElement} */ (document.getElementById("scroller"));
const WORDS = { connected: "", connecting: "Connecting…", lost: "Connection lost; trying again…" };

/** @param {boolean} isBusy */
function setBusy(isBusy) {
  const button = document.getElementById("stop");
  if (button) button.hidden = !isBusy;
  if (Boolean(chat.dataset.busy) === isBusy) return;
  chat.dataset.busy = isBusy ? "yes" : "";
  announceWork(isBusy);
  if (!isBusy) announceAnswer([...document.querySelectorAll("#log > .assistant")].at(-1));
}

/** @param {import("./stream.js").Happening} event */
function happen(event) {
  if (event.sessions) sessionsChanged();
  if (event.s !== chat.dataset.key) return;
  document.getElementById("welcome")?.remove();
  // What is new comes before what it replaces goes, so that the page never shrinks in between.
  for (const part of event.put ?? []) {
    log.put(part);
    if (part.id.startsWith("a-")) announce("nanobot asks for an approval");
  }
  log.drop(event.drop ?? []);
  addCopyButtons(document);
  changed();
  if (event.busy !== undefined) setBusy(event.busy);
}

async function reload() {
  const found = await get("/web/snapshot", { s: String(chat.dataset.key) });
  log.replaceAll(found.html);
  showFirst(found.first);
  setBusy(found.busy);
  addCopyButtons(document);
  sessionsChanged();
  changed();
  return found.event;
}

/** @param {number} first */
function showFirst(first) {
  chat.dataset.first = String(first);
  older.hidden = first === 0;
}

async function showOlder() {
  older.disabled = true;
  try {
    const found = await get("/web/history", { s: String(chat.dataset.key), before: String(chat.dataset.first) });
    log.prepend(found.html, scroller);
    showFirst(found.first);
    addCopyButtons(document);
  } catch (error) {
    alarm(error);
  }
  older.disabled = false;
}

/** @param {"connected" | "connecting" | "lost"} state */
function showState(state) {
  const place = /** @type {HTMLElement} */ (document.getElementById("connection"));
  place.textContent = WORDS[state];
  place.dataset.state = state;
  if (state === "connected") wakeUp();
}

addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.defaultPrevented || complete.isOpen()) return;
  if (document.querySelector("dialog:modal")) return;
  const menu = /** @type {HTMLDetailsElement | null} */ (document.querySelector("details.menu[open]"));
  if (menu) menu.open = false;
  else if (chat.dataset.busy) stop();
});
older.addEventListener("click", showOlder);
startActions();
startComposer();
startSessions();
startScrolling();
addCopyButtons(document);
new Stream(String(chat.dataset.event), happen, reload, showState).start();
