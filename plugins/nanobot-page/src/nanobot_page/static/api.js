// Requests to this server.

const chat = /** @type {HTMLElement} */ (document.getElementById("chat"));

/** A request was answered by an error. */
export class Refused extends Error {
  /** @param {string} message @param {number} status */
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/**
 * @param {Response} response
 * @returns {Promise<any>}
 */
export async function answerOf(response) {
  const found = await response.json().catch(() => ({}));
  if (response.status === 401) location.assign("/login");
  if (!response.ok) throw new Refused(found.error || `the gateway answered ${response.status}`, response.status);
  return found;
}

/** The header that proves that a request comes from this page. */
export const proof = { "x-nanobot-token": String(chat.dataset.token) };

/**
 * @param {string} path
 * @param {object} body
 */
export async function post(path, body) {
  return answerOf(
    await fetch(path, {
      method: "POST",
      headers: { ...proof, "content-type": "application/json" },
      body: JSON.stringify(body),
    }),
  );
}

/** @param {string} path @param {Record<string, string>} query */
export async function get(path, query) {
  return answerOf(await fetch(`${path}?${new URLSearchParams(query)}`));
}

/** @param {unknown} error */
export function alarm(error) {
  const place = /** @type {HTMLElement} */ (document.getElementById("alarms"));
  const reason = error instanceof Refused ? error.message : "the gateway cannot be reached";
  place.textContent = error ? `${reason[0].toUpperCase()}${reason.slice(1)}.` : "";
}
