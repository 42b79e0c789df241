// What all pages of the desk do: send a form once, however often its button is pressed until the
// answer comes, and show the present place in a menu that is too wide.

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

function showPlace() {
  document.querySelector(".menu [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
}
showPlace();
matchMedia("(max-width: 48rem)").addEventListener("change", showPlace);
