// Attached files: picked, dropped or pasted; sent in pieces, which go on where they broke off.

import { Refused, alarm, answerOf, proof } from "./api.js";

const PIECE = 1024 * 1024;
const TRIES = 8;
const FULL = 507;
const chips = /** @type {HTMLElement} */ (document.getElementById("chips"));
/** @type {Map<string, {file: string | null, name: string}>} */
const attached = new Map();

/** @param {string} id @param {string} name @param {HTMLElement} [state] */
function addChip(id, name, state) {
  const chip = document.createElement("li");
  const label = document.createElement("span");
  const remove = document.createElement("button");
  label.textContent = name;
  remove.type = "button";
  remove.className = "plain";
  remove.textContent = "✕";
  remove.setAttribute("aria-label", `Remove ${name}`);
  remove.onclick = () => {
    attached.delete(id);
    chip.remove();
  };
  chip.append(label, ...(state ? [state] : []), remove);
  chips.append(chip);
  return chip;
}

/** @param {File} file */
async function attach(file) {
  const id = crypto.randomUUID();
  const bar = document.createElement("progress");
  bar.max = Math.max(file.size, 1);
  bar.setAttribute("aria-label", `Upload of ${file.name}`);
  addChip(id, file.name, bar);
  attached.set(id, { file: null, name: file.name });
  await upload(id, file, bar);
}

/** @param {string} id @param {File} file @param {HTMLProgressElement} bar */
async function upload(id, file, bar) {
  let at = 0;
  for (let failures = 0; attached.has(id); ) {
    try {
      const query = new URLSearchParams({ id, at: `${at}`, size: `${file.size}`, name: file.name });
      const piece = file.slice(at, at + PIECE);
      const found = await answerOf(
        await fetch(`/web/files?${query}`, { method: "POST", headers: { ...proof, "content-type": "application/octet-stream" }, body: piece }),
      );
      bar.value = at = found.at;
      const entry = attached.get(id);
      if (found.file && entry) {
        entry.file = found.file;
        bar.closest("li")?.classList.add("ready");
        bar.remove();
        return;
      }
    } catch (error) {
      failures += 1;
      // Neither a refusal nor a full disk passes by itself.
      if (error instanceof Refused && (error.status < 500 || error.status === FULL)) failures = TRIES;
      if (failures >= TRIES) return failed(id, file, bar, error);
      await new Promise((resolve) => setTimeout(resolve, 250 * 2 ** failures));
    }
  }
}

/** Offers to continue an upload where it broke off. @param {string} id @param {File} file @param {HTMLProgressElement} bar @param {unknown} error */
function failed(id, file, bar, error) {
  alarm(error);
  const again = document.createElement("button");
  again.type = "button";
  again.textContent = "Try again";
  again.onclick = () => {
    alarm(null);
    again.replaceWith(bar);
    upload(id, file, bar);
  };
  bar.replaceWith(again);
}

/** The files for the next message; `null` while one is not there. */
export function takeFiles() {
  const found = [...attached.values()].map((each) => ({ id: each.file, name: each.name }));
  if (found.some((each) => each.id === null)) return null;
  attached.clear();
  chips.replaceChildren();
  return /** @type {{id: string, name: string}[]} */ (found);
}

/** Attaches files again that have been uploaded. @param {{id: string, name: string}[]} files */
export function giveBack(files) {
  for (const { id, name } of files) {
    attached.set(id, { file: id, name });
    addChip(id, name).classList.add("ready");
  }
}

/** @param {HTMLTextAreaElement} text */
export function startFiles(text) {
  const pick = /** @type {HTMLInputElement} */ (document.getElementById("pick"));
  pick.addEventListener("change", () => {
    for (const file of pick.files ?? []) attach(file);
    pick.value = "";
  });
  text.addEventListener("paste", (event) => {
    const files = [...(event.clipboardData?.files ?? [])];
    if (files.length) event.preventDefault();
    for (const file of files) attach(file);
  });
  addEventListener("dragover", (event) => {
    event.preventDefault();
    document.body.classList.add("dropping");
  });
  addEventListener("dragleave", (event) => event.relatedTarget || document.body.classList.remove("dropping"));
  addEventListener("drop", (event) => {
    event.preventDefault();
    document.body.classList.remove("dropping");
    for (const file of event.dataTransfer?.files ?? []) attach(file);
  });
}
