// Follows the end of the transcript only while the reader is there.

const scroller = /** @type {HTMLElement} */ (document.getElementById("scroller"));
const newer = /** @type {HTMLButtonElement} */ (document.getElementById("newer"));
let follows = true;
let last = 0;

export function toEnd() {
  follows = true;
  newer.hidden = true;
  scroller.scrollTop = scroller.scrollHeight;
  last = scroller.scrollTop;
}

/** To be called after the transcript has changed. */
export function changed() {
  if (follows) toEnd();
  else newer.hidden = false;
}

export function startScrolling() {
  const sentinel = /** @type {HTMLElement} */ (document.getElementById("end"));
  new IntersectionObserver(
    (entries) => {
      if (entries.at(-1)?.isIntersecting) {
        follows = true;
        newer.hidden = true;
      }
    },
    { root: scroller, rootMargin: "0px 0px 60px 0px" },
  ).observe(sentinel);
  scroller.addEventListener(
    "scroll",
    () => {
      // Only moving up is the reader's wish; text that grows moves the end away, not the reader.
      if (scroller.scrollTop < last - 2) follows = false;
      last = scroller.scrollTop;
    },
    { passive: true },
  );
  newer.addEventListener("click", toEnd);
  new ResizeObserver(() => follows && toEnd()).observe(scroller);
  window.visualViewport?.addEventListener("resize", () => {
    document.documentElement.style.setProperty("--seen", `${window.visualViewport?.height}px`);
    if (follows) toEnd();
  });
  toEnd();
}
