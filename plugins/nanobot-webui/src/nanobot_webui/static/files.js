// Attached files: picked, dropped or pasted; sent in pieces, which go on where they broke off.

import { alarm, answerOf, proof } from "./api.js";

const PIECE = 1024 * 1024;
const TRIES = 8;
const chips = /** @type {HTMLElement} */ (document.getElementById("chips"));
/** @type {Map<string, {file: string | null, chip: HTMLElement}>} */
const attached = new Map();

/** @param {File} file */
async function attach(file) {
  const id = crypto.randomUUID();
  const chip = document.createElement("li");
  const label = document.createElement("span");
  const bar = document.createElement("progress");
  const remove = document.createElement("button");
  label.textContent = file.name;
  bar.max = Math.max(file.size, 1);
  bar.setAttribute("aria-label", `Upload of ${file.name}`);
  remove.type = "button";
  remove.className = "plain";
  remove.textContent = "✕";
  remove.setAttribute("aria-label", `Remove ${file.name}`);
  remove.onclick = () => {
    attached.delete(id);
    chip.remove();
  };
  chip.append(label, bar, remove);
  chips.append(chip);
  attached.set(id, { file: null, chip });
  await upload(id, file, chip, bar);
}

/** @param {string} id @param {File} file @param {HTMLElement} chip @param {HTMLProgressElement} bar */
async function upload(id, file, chip, bar) {
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
        bar.remove();
        chip.classList.add("ready");
        return;
      }
    } catch (error) {
      failures += 1;
      if (error instanceof Error && "status" in error && Number(error.status) < 500) failures = TRIES;
      if (failures >= TRIES) return failed(id, file, chip, error);
      await new Promise((resolve) => setTimeout(resolve, 250 * 2 ** failures));
    }
  }
}

/** @param {string} id @param {File} file @param {HTMLElement} chip @param {unknown} error */
function failed(id, file, chip, error) {
  alarm(error);
  attached.delete(id);
  const again = document.createElement("button");
  again.type = "button";
  again.textContent = "Try again";
  again.onclick = () => {
    chip.remove();
    attach(file);
  };
  chip.querySelector("progress")?.replaceWith(again);
}

/** Ids of the files for the next message; `null` while one is on its way. */
export function takeFiles() {
  const found = [...attached.values()].map((each) => each.file);
  if (found.includes(null)) return null;
  attached.clear();
  chips.replaceChildren();
  return /** @type {string[]} */ (found);
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
