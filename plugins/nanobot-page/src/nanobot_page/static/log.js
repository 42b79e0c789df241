// The transcript: elements with ids, in the order of their places.

import { elementsOf } from "./put.js";

const log = /** @type {HTMLElement} */ (document.getElementById("log"));
const end = /** @type {HTMLElement} */ (document.getElementById("end"));

/** @param {Element} element */
const placeOf = (element) => Number(/** @type {HTMLElement} */ (element).dataset.place ?? -1);

/**
 * Adds an element, or replaces the one with its id. An open line stays open, and an element with
 * the focus or a selection in it is not torn away.
 * @param {{id: string, in?: string, place: number, html: string}} part
 */
export function put(part) {
  const parent = part.in ? document.getElementById(part.in) : log;
  if (!parent) return;
  for (const element of elementsOf(part.html)) {
    const old = document.getElementById(element.id);
    if (old && parent.contains(old)) {
      if (old.outerHTML === element.outerHTML) continue;
      keepOpen(old, element);
      if (old.contains(document.activeElement)) {
        keepFocus(old, element);
        continue;
      }
      if (placeOf(old) === placeOf(element)) {
        old.replaceWith(element);
        continue;
      }
      old.remove();
    }
    insert(parent, element);
  }
  if (part.in) parent.querySelector(".working")?.remove();
}

/** @param {Element} parent @param {Element} element */
export function insert(parent, element) {
  const place = placeOf(element);
  const later = [...parent.children].find((other) => other === end || placeOf(other) > place);
  parent.insertBefore(element, later ?? null);
}

/** @param {Element} old @param {Element} element */
function keepOpen(old, element) {
  if (old instanceof HTMLDetailsElement && element instanceof HTMLDetailsElement) element.open = old.open;
}

/** Replaces the content around the focused line instead of the line. @param {Element} old @param {Element} element */
function keepFocus(old, element) {
  const line = old.querySelector(":scope > summary");
  if (!line || line !== document.activeElement) return old.replaceWith(element);
  for (const child of [...old.childNodes]) if (child !== line) child.remove();
  const fresh = element.querySelector(":scope > summary");
  if (fresh) line.replaceChildren(...fresh.childNodes);
  for (const child of [...element.childNodes]) if (child !== fresh) old.append(child);
  old.className = element.className;
}

/** @param {string[]} ids */
export function drop(ids) {
  for (const id of ids) document.getElementById(id)?.remove();
}

/** Replaces everything but messages that the gateway does not have yet. @param {string} html */
export function replaceAll(html) {
  const fresh = elementsOf(html);
  const ids = new Set(fresh.map((element) => element.id));
  for (const element of [...log.children]) {
    if (element.id && element.hasAttribute("data-place") && !element.matches(".unsent") && !ids.has(element.id)) element.remove();
  }
  for (const element of fresh) put({ id: element.id, place: placeOf(element), html: element.outerHTML });
}

/** Adds older elements without moving what is read. @param {string} html @param {HTMLElement} scroller */
export function prepend(html, scroller) {
  const height = scroller.scrollHeight;
  for (const element of elementsOf(html)) put({ id: element.id, place: placeOf(element), html: element.outerHTML });
  scroller.scrollTop += scroller.scrollHeight - height;
}
