// The list of chats, and what can be done with the present one.

import { divide } from "./actions.js";
import { alarm, post } from "./api.js";
import { fill } from "./put.js";

const chat = /** @type {HTMLElement} */ (document.getElementById("chat"));
const list = /** @type {HTMLElement} */ (document.getElementById("sessions"));
const search = /** @type {HTMLInputElement} */ (document.getElementById("search"));
const side = /** @type {HTMLDialogElement} */ (document.getElementById("side"));
const wide = matchMedia("(min-width: 56rem)");
/** @type {ReturnType<typeof setTimeout> | undefined} */
let soon;

async function refresh() {
  const query = new URLSearchParams({ q: search.value, s: String(chat.dataset.key) });
  const answer = await fetch(`/web/sessions?${query}`);
  if (!answer.ok) return;
  const focused = document.activeElement?.getAttribute("data-key");
  fill(list, await answer.text());
  const entry = /** @type {HTMLElement | null} */ (list.querySelector("[aria-current]"));
  const title = entry?.dataset.title;
  if (title) {
    document.title = `${title} · nanobot`;
    /** @type {HTMLElement} */ (document.getElementById("title")).textContent = title;
  }
  if (focused) for (const link of list.querySelectorAll("a")) if (link.dataset.key === focused) link.focus();
}

/** Loads the list again, at most every second. */
export function sessionsChanged() {
  soon ??= setTimeout(() => {
    soon = undefined;
    refresh().catch(() => {});
  }, 1_000);
}

/** Asks in a dialog; returns the value, or `null`. @param {string} title @param {string} yes @param {string | null} value */
function ask(title, yes, value) {
  const dialog = /** @type {HTMLDialogElement} */ (document.getElementById("ask"));
  const input = /** @type {HTMLInputElement} */ (document.getElementById("ask-value"));
  /** @type {HTMLElement} */ (document.getElementById("ask-title")).textContent = title;
  /** @type {HTMLElement} */ (document.getElementById("ask-yes")).textContent = yes;
  /** @type {HTMLElement} */ (document.getElementById("ask-label")).hidden = value === null;
  input.hidden = value === null;
  input.value = value ?? "";
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.onclose = () => resolve(dialog.returnValue ? input.value : null);
  });
}

/** @param {string} what */
async function change(what) {
  const session = chat.dataset.key;
  if (what === "branch") return divide("branch", 10 ** 8);
  const title = document.getElementById("title")?.textContent ?? "";
  const value = what === "rename" ? await ask("Rename this chat", "Rename", title) : await ask("Delete this chat for good?", "Delete", null);
  if (value === null) return;
  await post("/web/sessions", { session, do: what, title: value });
  if (what === "delete") location.assign("/");
  else sessionsChanged();
}

/** Shows the list beside the chat where there is room; what has the focus keeps it. */
function arrange() {
  const active = document.activeElement;
  if (side.open) side.close();
  if (wide.matches) side.show();
  if (active instanceof HTMLElement) active.focus();
}

export function startSessions() {
  arrange();
  wide.addEventListener("change", arrange);
  document.getElementById("open-chats")?.addEventListener("click", () => side.showModal());
  document.getElementById("close-chats")?.addEventListener("click", () => side.close());
  search.addEventListener("input", sessionsChanged);
  for (const button of document.querySelectorAll("[data-session]")) {
    button.addEventListener("click", () => change(String(/** @type {HTMLElement} */ (button).dataset.session)).catch(alarm));
  }
}
