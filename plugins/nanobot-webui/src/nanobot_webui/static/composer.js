// The field in which messages are written.

import { alarm, insist, post } from "./api.js";
import { announce } from "./announce.js";
import * as complete from "./complete.js";
import { startFiles, takeFiles } from "./files.js";
import { toEnd } from "./scroll.js";

const chat = /** @type {HTMLElement} */ (document.getElementById("chat"));
const text = /** @type {HTMLTextAreaElement | null} */ (document.getElementById("text"));
const form = /** @type {HTMLFormElement | null} */ (document.getElementById("composer"));
const isTouch = matchMedia("(pointer: coarse)").matches;
const draftKey = () => `nanobot draft ${chat.dataset.new ? "new" : chat.dataset.key}`;

function grow() {
  if (!text) return;
  text.style.height = "auto";
  text.style.height = `${Math.min(text.scrollHeight + 2, innerHeight * 0.4)}px`;
}

function keepDraft() {
  if (text?.value) localStorage.setItem(draftKey(), text.value);
  else localStorage.removeItem(draftKey());
}

/** Sends a message, and gives it back to the field if that fails. @param {string} content @param {string[]} files */
export async function send(content, files) {
  const session = String(chat.dataset.key);
  try {
    alarm(null);
    await insist("/web/messages", { id: crypto.randomUUID(), session, text: content, files });
    if (chat.dataset.new) {
      chat.dataset.new = "";
      history.replaceState(null, "", `/chat?s=${encodeURIComponent(session)}`);
      document.getElementById("welcome")?.remove();
    }
    toEnd();
  } catch (error) {
    alarm(error);
    if (text && !text.value) text.value = content;
    grow();
    keepDraft();
  }
}

async function submit() {
  if (!text) return;
  const content = text.value.trim();
  if (!content && !document.querySelector("#chips > li")) return;
  const files = takeFiles();
  if (files === null) return announce("A file is still on its way");
  text.value = "";
  keepDraft();
  complete.close();
  grow();
  await send(content, files);
}

export async function stop() {
  try {
    await post("/web/stop", { session: chat.dataset.key });
    announce("Stopped");
  } catch (error) {
    alarm(error);
  }
}

export function startComposer() {
  if (!text || !form) return;
  startFiles(text);
  text.value ||= localStorage.getItem(draftKey()) ?? "";
  grow();
  text.addEventListener("input", () => {
    grow();
    keepDraft();
    complete.update();
  });
  text.addEventListener("blur", () => complete.close());
  text.addEventListener("keydown", (event) => {
    // An input method uses Enter to accept what it proposes.
    if (event.isComposing || event.keyCode === 229 || complete.handleKey(event)) return;
    if (event.key === "Enter" && !event.shiftKey && !isTouch) {
      event.preventDefault();
      submit();
    }
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  document.getElementById("stop")?.addEventListener("click", stop);
  document.getElementById("model")?.addEventListener("change", (event) => {
    const name = /** @type {HTMLSelectElement} */ (event.target).value;
    if (name) send(`/model ${name}`, []);
  });
  for (const button of document.querySelectorAll("[data-try]")) {
    button.addEventListener("click", () => send(String(/** @type {HTMLElement} */ (button).dataset.try), []));
  }
  if (!isTouch) text.focus();
}
