// Signs in with the code in the fragment of the address, or with the password.

const status = /** @type {HTMLElement} */ (document.getElementById("status"));

/** @param {object} proof */
async function signIn(proof) {
  status.textContent = "Signing in…";
  try {
    const response = await fetch("/login", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(proof),
    });
    if (response.ok) {
      await response.json();
      location.replace("/");
      return;
    }
    status.textContent = `Not signed in: ${(await response.json()).error}.`;
  } catch {
    status.textContent = "Not signed in: the gateway cannot be reached.";
  }
}

function signInWithCode() {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (!code) return;
  history.replaceState(null, "", "/login");
  signIn({ code });
}

signInWithCode();
// A link that is opened while this page is shown changes only the fragment.
addEventListener("hashchange", signInWithCode);
const form = /** @type {HTMLFormElement | null} */ (document.getElementById("password-form"));
form?.addEventListener("submit", (event) => {
  event.preventDefault();
  const fields = new FormData(form);
  signIn({ name: String(fields.get("name") ?? ""), password: String(fields.get("password")) });
});
