// Sends a form once, however often its button is pressed until the answer comes.

/** @type {WeakSet<EventTarget>} */
const sent = new WeakSet();

addEventListener("submit", (event) => {
  const form = /** @type {EventTarget} */ (event.target);
  if (sent.has(form)) event.preventDefault();
  sent.add(form);
});
addEventListener("pageshow", (event) => {
  // A page from the browser's history has the forms that it had when it was left.
  if (event.persisted) for (const form of document.forms) sent.delete(form);
});
