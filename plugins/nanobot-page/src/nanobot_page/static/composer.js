// The field in which messages are written.

import { Refused, alarm, post } from "./api.js";
import { announce } from "./announce.js";
import * as complete from "./complete.js";
import { giveBack, startFiles, takeFiles } from "./files.js";
import { toEnd } from "./scroll.js";
import * as unsent from "./unsent.js";

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

/** Gives a message that is not sent back to the field. @param {{text: string, files: {id: string, name: string}[]}} message */
function takeBack(message) {
  if (!text) return;
  text.value = [text.value, message.text].filter(Boolean).join("\n\n");
  giveBack(message.files);
  grow();
  keepDraft();
}

/** Sends a message, and gives it back to the field if the gateway refuses it. @param {string} content @param {{id: string, name: string}[]} files */
export async function send(content, files) {
  const session = String(chat.dataset.key);
  alarm(null);
  if (chat.dataset.new) {
    // Before it is sent, so that it is found again if the page is loaded again meanwhile.
    chat.dataset.new = "";
    history.replaceState(null, "", `/chat?s=${encodeURIComponent(session)}`);
    document.getElementById("welcome")?.remove();
  }
  const message = { session, text: content, files };
  const sent = unsent.send(message, takeBack);
  toEnd();
  try {
    await sent;
  } catch (error) {
    alarm(error);
    takeBack(message);
  }
}

async function submit() {
  if (!text) return;
  const content = text.value.trim();
  if (!content && !document.querySelector("#chips > li")) return;
  const files = takeFiles();
  if (files === null) return alarm(new Refused("a file is not uploaded yet: wait, try again or remove it", 0));
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
  unsent.resume(String(chat.dataset.key), takeBack);
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
