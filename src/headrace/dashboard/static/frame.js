// What the frame of every page has: the theme, and the list of keys.

const themes = ["system", "light", "dark"];
const SHOWN = { system: "◐", light: "☀", dark: "☾" };
const base = document.querySelector('meta[name="headrace-base"]')?.content ?? "";
const root = document.documentElement;
const button = document.querySelector("#theme");

// The server reads the cookie and writes the theme into the page: so no page is shown in another one first.
function themed(theme) {
  if (theme === "system") delete root.dataset.theme;
  else root.dataset.theme = theme;
  if (!button) return;
  button.textContent = SHOWN[theme];
  button.title = `Theme: ${theme}`;
  button.setAttribute("aria-label", `Theme: ${theme}`);
}

button?.addEventListener("click", () => {
  const next = themes[(themes.indexOf(root.dataset.theme ?? "system") + 1) % themes.length];
  document.cookie = `headrace_theme=${next}; path=${base || "/"}; max-age=31536000; samesite=strict`;
  themed(next);
});
themed(root.dataset.theme ?? "system");

const keys = document.querySelector("#keys-dialog");
const openKeys = () => keys && !document.querySelector("dialog[open]") && keys.showModal();
document.querySelector("#show-keys")?.addEventListener("click", openKeys);
keys?.addEventListener("click", (event) => event.target === keys && keys.close());
document.addEventListener("keydown", (event) => {
  const writing = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (event.key === "?" && !writing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    openKeys();
  }
});
