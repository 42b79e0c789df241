// Completion of slash commands as a list below the field; a combobox must be one line, so the field stays a text box.

const text = /** @type {HTMLTextAreaElement} */ (document.getElementById("text"));
const list = /** @type {HTMLElement} */ (document.getElementById("options"));
/** @type {Record<string, string>} */
const commands = JSON.parse(document.getElementById("commands")?.textContent || "{}");
let chosen = -1;

export function isOpen() {
  return !list.hidden;
}

export function close() {
  list.hidden = true;
  chosen = -1;
  text.removeAttribute("aria-activedescendant");
}

/** Shows the commands that begin with what is written. */
export function update() {
  const typed = /^\/([a-z0-9-]*)$/i.exec(text.value)?.[1];
  const found = typed === undefined ? [] : Object.keys(commands).filter((name) => name.startsWith(typed.toLowerCase()));
  if (!found.length) return close();
  list.replaceChildren(
    ...found.map((name, index) => {
      const option = document.createElement("li");
      option.id = `option-${index}`;
      option.role = "option";
      option.dataset.name = name;
      const label = document.createElement("strong");
      label.textContent = `/${name}`;
      option.append(label, ` ${commands[name]}`);
      option.addEventListener("mousedown", (event) => event.preventDefault());
      option.addEventListener("click", () => take(name));
      return option;
    }),
  );
  list.hidden = false;
  choose(0);
}

/** @param {number} index */
function choose(index) {
  const options = [...list.children];
  chosen = (index + options.length) % options.length;
  options.forEach((option, at) => option.setAttribute("aria-selected", `${at === chosen}`));
  text.setAttribute("aria-activedescendant", `option-${chosen}`);
  options[chosen].scrollIntoView({ block: "nearest" });
}

/** @param {string} name */
function take(name) {
  text.value = `/${name} `;
  close();
  text.focus();
}

/** Handles a key while the list is open; returns whether it did. @param {KeyboardEvent} event */
export function handleKey(event) {
  if (!isOpen()) return false;
  const name = /** @type {HTMLElement | undefined} */ (list.children[chosen])?.dataset.name ?? "";
  if (event.key === "ArrowDown") choose(chosen + 1);
  else if (event.key === "ArrowUp") choose(chosen - 1);
  else if (event.key === "Escape") close();
  else if (event.key === "Tab" || (event.key === "Enter" && text.value !== `/${name}`)) take(name);
  else return false;
  event.preventDefault();
  return true;
}
