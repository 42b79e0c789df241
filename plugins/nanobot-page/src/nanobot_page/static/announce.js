// What a screen reader hears: one status line. The transcript itself is not a live region.

const says = /** @type {HTMLElement} */ (document.getElementById("says"));
/** @type {ReturnType<typeof setInterval> | undefined} */
let working;

/** @param {string} text */
export function announce(text) {
  says.textContent = text;
}

/** @param {boolean} isBusy */
export function announceWork(isBusy) {
  clearInterval(working);
  if (!isBusy) return;
  announce("nanobot is answering");
  let seconds = 0;
  working = setInterval(() => announce(`still answering, ${(seconds += 7)} seconds`), 7_000);
}

/** Announces the whole answer once. @param {Element | undefined} message */
export function announceAnswer(message) {
  const text = message?.querySelector(":scope > .text")?.textContent?.trim();
  announce(text ? `nanobot: ${text.slice(0, 2_000)}` : "nanobot has finished");
}
