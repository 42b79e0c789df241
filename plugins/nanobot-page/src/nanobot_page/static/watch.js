// A page that shows work of the gateway: asks for its parts and replaces those that have changed.

import { elementsOf } from "./put.js";

const EVERY_MS = 1_000;
const watched = /** @type {HTMLElement} */ (document.getElementById("watched"));
/** @type {ReturnType<typeof setTimeout> | undefined} */
let next;

/** Replaces the content of a part, unless it is the same: what is typed in it stays. @param {string} id @param {string} html */
function show(id, html) {
  const part = /** @type {HTMLElement} */ (document.getElementById(id));
  const fresh = elementsOf(html);
  if (fresh.length === part.children.length && fresh.every((each, place) => each.isEqualNode(part.children[place]))) return;
  const hadFocus = part.contains(document.activeElement);
  part.replaceChildren(...fresh);
  if (!hadFocus) return;
  part.tabIndex = -1;
  part.focus();
}

async function look() {
  clearTimeout(next);
  try {
    const response = await fetch(String(watched.dataset.from));
    if (response.status === 401) return location.assign("/login");
    if (response.ok) {
      const found = await response.json();
      for (const [id, html] of Object.entries(found.parts)) show(id, html);
      watched.dataset.busy = found.busy ? "yes" : "";
    }
  } catch {
    // The gateway is away, as while it restarts; the next look finds out.
  }
  if (watched.dataset.busy) next = setTimeout(look, EVERY_MS);
}

// Another page may have begun something since.
document.addEventListener("visibilitychange", () => document.hidden || look());
addEventListener("pageshow", (event) => event.persisted && look());
addEventListener("pagehide", () => {
  const { leave, busy } = watched.dataset;
  const form = watched.querySelector("form");
  if (!leave || !busy || !form) return;
  const fields = new URLSearchParams({ do: "leave" });
  for (const name of ["token", "channel"]) fields.set(name, String(new FormData(form).get(name)));
  fetch(leave, { method: "POST", body: fields, keepalive: true, redirect: "manual" });
});
if (watched.dataset.busy) next = setTimeout(look, EVERY_MS);
