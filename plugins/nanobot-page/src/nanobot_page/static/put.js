// The only place that makes markup from text. It comes from templates of this server, which escape
// every value; the policy lets nothing else write markup.

const policy = window.trustedTypes
  ? window.trustedTypes.createPolicy("nanobot", { createHTML: (text) => text })
  : { createHTML: (/** @type {string} */ text) => text };

/**
 * Returns the elements of a piece of HTML that this server has rendered.
 * @param {string} html
 * @returns {Element[]}
 */
export function elementsOf(html) {
  const template = document.createElement("template");
  // @ts-ignore - the type of innerHTML does not know trusted types
  template.innerHTML = policy.createHTML(html);
  return [...template.content.children];
}

/**
 * Replaces the content of an element.
 * @param {Element} target
 * @param {string} html
 */
export function fill(target, html) {
  target.replaceChildren(...elementsOf(html));
}
