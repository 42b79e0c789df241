// Follows the end of the transcript only while the reader is there.

const scroller = /** @type {HTMLElement} */ (document.getElementById("scroller"));
const newer = /** @type {HTMLButtonElement} */ (document.getElementById("newer"));
let follows = true;
let last = 0;
let touched = -Infinity;

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
      // Only the reader's own moving up counts; text that comes and goes moves things too.
      if (scroller.scrollTop < last - 2 && performance.now() - touched < 1_000) follows = false;
      last = scroller.scrollTop;
    },
    { passive: true },
  );
  for (const name of ["wheel", "touchmove", "keydown", "pointerdown"]) {
    scroller.addEventListener(name, () => (touched = performance.now()), { passive: true });
  }
  newer.addEventListener("click", toEnd);
  const sizes = new ResizeObserver(() => follows && toEnd());
  sizes.observe(scroller);
  sizes.observe(/** @type {HTMLElement} */ (document.getElementById("log")));
  window.visualViewport?.addEventListener("resize", () => {
    document.documentElement.style.setProperty("--seen", `${window.visualViewport?.height}px`);
    if (follows) toEnd();
  });
  toEnd();
}
