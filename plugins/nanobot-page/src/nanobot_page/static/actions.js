// Buttons in the transcript: copy, retry, branch, approvals.

import { alarm, post } from "./api.js";
import { announce } from "./announce.js";

const chat = /** @type {HTMLElement} */ (document.getElementById("chat"));
const log = /** @type {HTMLElement} */ (document.getElementById("log"));

/** @param {string} text @param {HTMLElement} button */
async function copy(text, button) {
  await navigator.clipboard.writeText(text);
  const label = button.textContent;
  button.textContent = "Copied";
  announce("Copied");
  setTimeout(() => (button.textContent = label), 1_500);
}

/** @param {HTMLElement} card @param {boolean} allowed */
async function answer(card, allowed) {
  const buttons = /** @type {NodeListOf<HTMLButtonElement>} */ (card.querySelectorAll("button"));
  for (const button of buttons) button.disabled = true;
  const status = /** @type {HTMLElement} */ (card.querySelector("[role=status]"));
  try {
    await post("/web/approvals", { question: card.dataset.question, digest: card.dataset.digest, allowed });
    status.textContent = allowed ? "Allowed" : "Denied";
  } catch (error) {
    status.textContent = error instanceof Error ? error.message : "not sent";
    for (const button of buttons) button.disabled = false;
  }
}

/** Creates a session from a part of this one and opens it. @param {"branch" | "retry"} what @param {number} index */
export async function divide(what, index) {
  try {
    const found = await post("/web/sessions", { session: chat.dataset.key, do: what, index });
    if (what === "retry") {
      await post("/web/messages", { id: crypto.randomUUID(), session: found.s, text: found.text, files: found.files });
    }
    location.assign(`/chat?s=${encodeURIComponent(found.s)}`);
  } catch (error) {
    alarm(error);
  }
}

/** Adds a copy button to each block of code. @param {ParentNode} root */
export function addCopyButtons(root) {
  for (const block of root.querySelectorAll(".text pre:not(.with-copy)")) {
    block.classList.add("with-copy");
    const button = document.createElement("button");
    button.className = "copy plain";
    button.textContent = "Copy";
    button.setAttribute("aria-label", "Copy the code");
    const frame = document.createElement("div");
    frame.className = "code-frame";
    block.replaceWith(frame);
    frame.append(block, button);
    button.onclick = () => copy(block.querySelector("code")?.textContent ?? "", button).catch(alarm);
  }
}

export function startActions() {
  log.addEventListener("click", (event) => {
    const button = /** @type {HTMLElement} */ (event.target).closest("button");
    const message = /** @type {HTMLElement | null} */ (button?.closest("[data-place]"));
    if (!button || !message) return;
    if (button.dataset.answer) return answer(message, button.dataset.answer === "allow");
    const source = message.querySelector(":scope > template.source");
    if (button.dataset.do === "copy") {
      return copy(/** @type {HTMLTemplateElement} */ (source).content.textContent ?? "", button).catch(alarm);
    }
    if (button.dataset.do) divide(/** @type {"branch" | "retry"} */ (button.dataset.do), Number(message.dataset.index));
  });
}
