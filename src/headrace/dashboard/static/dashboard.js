// The script of the dashboard. Pages are whole without it; it keeps them up to date, and lets people act.
// Whatever comes from the store is put into the page as text, never as markup.

const meta = (name) => document.querySelector(`meta[name="headrace-${name}"]`)?.content ?? "";
const base = meta("base");
const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

document.documentElement.classList.add("scripted");

function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

// ---- moments: shown in the zone of the browser, exact in UTC on hover

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
document.cookie = `headrace_zone=${encodeURIComponent(zone)}; path=${base || "/"}; max-age=31536000; samesite=strict`;

// The clock of the server counts: that of this machine may be wrong.
const ahead = (Date.parse(document.documentElement.dataset.now ?? "") || Date.now()) - Date.now();
const now = () => Date.now() + ahead;
// The moment that the figures are of; while they cannot be read, ages stand still at it.
let figures = now(), still = false;

const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

function span(seconds) {
  if (seconds < 0.0995) return "0 s";
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  for (let index = 0; index < UNITS.length; index++) {
    const [unit, size] = UNITS[index];
    if (whole < size) continue;
    const next = UNITS[index + 1];
    const rest = next ? Math.floor((whole % size) / next[1]) : 0;
    return `${Math.floor(whole / size)} ${unit}` + (rest ? ` ${rest} ${next[0]}` : "");
  }
  return "0 s";
}

// Tenths that change all the time help nobody.
const whole = (seconds) => (seconds < 10 ? `${seconds} s` : span(seconds));

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const shortClock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
const year = new Intl.DateTimeFormat(undefined, { year: "numeric", month: "short", day: "numeric" });

function show(time) {
  const moment = Date.parse(time.dateTime);
  if (Number.isNaN(moment)) return;
  const kind = time.dataset.as;
  let seconds = ((still && !time.closest("#away") ? figures : now()) - moment) / 1000;
  if (kind === "ago" && seconds > -5) seconds = Math.max(seconds, 0); // it is over: clocks differ a little
  let text;
  if (kind === "age" || kind === "ago") {
    text = seconds < 0 ? `in ${whole(Math.ceil(-seconds))}` : whole(Math.floor(seconds)) + (kind === "ago" ? " ago" : "");
  } else {
    const date = new Date(moment), today = new Date(now());
    const same = date.toDateString() === today.toDateString();
    const thisYear = date.getFullYear() === today.getFullYear();
    const hours = time.closest(".chart") ? shortClock.format(date) : clock.format(date);
    const dated = thisYear ? day.format(date) : year.format(date);
    const scale = time.closest(".chart .scale");
    const short = scale && Date.parse(scale.lastElementChild.dateTime) - Date.parse(scale.firstElementChild.dateTime) < 1.3e8;
    text = short || (same && kind !== "day") ? hours : scale ? dated : `${dated}, ${hours}`;
  }
  if (time.textContent !== text) time.textContent = text;
}

const showAll = (root = document) => $$("time[data-as]", root).forEach(show);
showAll();
setInterval(() => document.hidden || $$('time[data-as^="a"]:not([data-as="at"])').forEach(show), 1000);

// ---- what is new, put into the page without disturbing whoever reads it

const KEPT = new Set(["open", "checked", "value", "hidden", "aria-expanded"]);
let held = null; // while somebody is busy in the list of jobs: how it would look by now

const keyOf = (node) => (node.nodeType === 1 ? node.dataset.key ?? node.id ?? "" : "");

function morph(old, fresh) {
  if (old.nodeType !== 1) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  if (old.hasAttribute("data-keep")) {
    // What a person edits stays; figures in it are current.
    for (const part of $$("[data-figure]", old)) {
      part.textContent = $(`[data-figure="${part.dataset.figure}"]`, fresh)?.textContent ?? part.textContent;
    }
    return;
  }
  for (const { name, value } of fresh.attributes) {
    const stays = KEPT.has(name) && !["PROGRESS", "METER", "LI", "OPTION"].includes(old.tagName);
    if (!stays && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !KEPT.has(name)) old.removeAttribute(name);
  }
  if (old.tagName === "TIME") return show(old);
  if (old.tagName === "TEMPLATE") {
    if (old.innerHTML !== fresh.innerHTML) old.replaceWith(document.importNode(fresh, true));
    return;
  }
  if (old.hasAttribute("data-live-list") && isBusy(old)) return hold(old, fresh);
  const follows = old.hasAttribute("data-follow") && old.scrollTop + old.clientHeight >= old.scrollHeight - 8;
  morphChildren(old, fresh);
  if (follows) old.scrollTop = old.scrollHeight;
}

function morphChildren(old, fresh) {
  const keyed = new Map();
  for (const child of old.children) if (keyOf(child)) keyed.set(keyOf(child), child);
  let at = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    const key = keyOf(child);
    let match = key ? keyed.get(key) : null;
    if (match && match.nodeName !== child.nodeName) match = null;
    if (!match && !key) {
      while (at && keyOf(at) && !keptIn(fresh, keyOf(at))) { const gone = at; at = at.nextSibling; gone.remove(); }
      if (at && at.nodeName === child.nodeName && !keyOf(at)) match = at;
    }
    if (!match) {
      const made = document.importNode(child, true);
      old.insertBefore(made, at);
      if (made.nodeType === 1) {
        if (made.tagName === "TR" && key) made.classList.add("new");
        showAll(made);
        if (made.tagName === "TIME") show(made);
      }
      continue;
    }
    if (match === at) at = at.nextSibling;
    else old.insertBefore(match, at);
    morph(match, child);
  }
  while (at) { const gone = at; at = at.nextSibling; gone.remove(); }
}

const keptIn = (parent, key) => [...parent.children].some((child) => keyOf(child) === key);

function isBusy(list) {
  return window.scrollY > 240 || list.matches(":hover") || list.contains(document.activeElement) || $("input:checked", list) !== null;
}

function hold(old, fresh) {
  const known = new Map($$("tbody tr", old).map((row) => [row.dataset.key, row]));
  let news = 0;
  for (const row of $$("tbody tr", fresh)) {
    const mine = known.get(row.dataset.key);
    if (mine) morph(mine, row);
    else news++;
  }
  held = { old, fresh };
  let pill = $("#fresh");
  if (!news) return pill?.remove();
  if (!pill) {
    pill = make("button", { id: "fresh", type: "button", class: "fresh", onclick: release });
    old.before(pill);
  }
  const text = `Show ${news === 1 ? "1 new job" : `${news} new jobs`}`;
  if (pill.textContent !== text) pill.textContent = text;
}

function release() {
  const waiting = held;
  held = null;
  $("#fresh")?.remove();
  if (waiting) morphChildren(waiting.old, waiting.fresh);
  choose();
}

// ---- asking again

let tag = "", timer = 0, asking = false, trouble = null;
const light = $("#live");

function lit(name, text) {
  if (!light) return;
  light.className = `js ${name}`;
  light.title = text;
  light.setAttribute("aria-label", text);
}

// What an outage means for whoever looks at this page.
const TROUBLES = {
  away: ["The store has not answered since ", "This page goes on by itself as soon as it does."],
  server: ["This page has not reached its server since ", "It goes on by itself as soon as it does. Jobs may well go on."],
  refused: ["This page could not be made anew since ", "It tries again by itself. The log of the server says why."],
  unwritable: ["The store has taken no writes since ", "Jobs are neither started nor finished, and nothing can be changed. What is shown is current."],
};

function outage(kind, since = "") {
  const place = $("#away");
  if (kind === (trouble?.kind ?? null)) return;
  trouble = kind ? { kind, since: since || new Date(now()).toISOString() } : null;
  still = Boolean(kind) && kind !== "unwritable";
  lit(kind ? (still ? "away" : "held") : "", kind ? TROUBLES[kind][0].replace(/ since $/, "") : "Live");
  if (!place) return;
  if (kind) {
    const [what, then] = TROUBLES[kind];
    const time = (at, as) => make("time", { datetime: at, "data-as": as, title: at });
    const parts = [make("b", {}, what, time(trouble.since, "at")), make("small", { "aria-hidden": "true" }, time(trouble.since, "age")), ". "];
    if (still) parts.push("The figures are of ", time(new Date(figures).toISOString(), "at"), ", and ages stand still. ");
    place.replaceChildren(make("p", {}, ...parts, then));
  } else place.replaceChildren();
  showAll();
}

// While something is wrong a page asks every second: the server answers that from memory.
function later() {
  clearTimeout(timer);
  const every = Number($("#main")?.dataset.every ?? 0) * 1000;
  if (every && !document.hidden) timer = setTimeout(refresh, trouble ? Math.min(every, 1000) : every);
}

const PATIENCE = 15000; // milliseconds: a server that hangs is not reached either

async function refresh() {
  const main = $("#main[data-every]");
  if (!main || asking) return;
  asking = true;
  try {
    const headers = { "x-headrace-live": "1", ...(tag ? { "if-none-match": tag } : {}) };
    const asked = now();
    const answer = await fetch(location.href, { headers, cache: "no-store", redirect: "manual", signal: AbortSignal.timeout(PATIENCE) });
    if (answer.status === 401 || answer.type === "opaqueredirect") return location.reload();
    const [kind, since] = (answer.headers.get("x-headrace-store") ?? "").split(" ");
    if (answer.status !== 304 && !answer.ok) return outage(kind || ([502, 504].includes(answer.status) ? "server" : "refused"), since);
    if (answer.status !== 304) {
      const text = await answer.text();
      tag = answer.headers.get("etag") ?? "";
      const page = new DOMParser().parseFromString(text, "text/html");
      const fresh = $("#main", page);
      const had = document.activeElement;
      still = false;
      if (fresh) morph(main, fresh);
      if (page.title) document.title = page.title;
      if (had && had !== document.body && !had.isConnected) main.focus({ preventScroll: true });
      choose();
    }
    figures = asked;
    outage(kind || null, since);
  } catch {
    outage("server");
  } finally {
    asking = false;
    later();
  }
}

document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : refresh()));
if ($("#away")?.dataset.kind) outage($("#away").dataset.kind, $("#away").dataset.since);
later();

// ---- telling

let hush = 0;
function tell(text, bad = false) {
  const place = $("#told");
  if (!place || !text) return;
  clearTimeout(hush);
  place.replaceChildren(make("p", { class: bad ? "bad" : "" }, text));
  hush = setTimeout(() => place.replaceChildren(), bad ? 12000 : 5000);
}

// ---- acting

async function act(body, progress) {
  const headers = { "content-type": "application/json", "x-headrace-token": meta("token") };
  const answer = await fetch(`${base}/act`, { method: "POST", headers, body: JSON.stringify(body) });
  const kind = answer.headers.get("content-type") ?? "";
  if (kind.startsWith("application/x-ndjson")) return lines(answer, progress);
  const said = kind.startsWith("application/json") ? await answer.json() : { error: `The server answered ${answer.status}.` };
  if (!answer.ok || said.error) throw Object.assign(new Error(said.error ?? "It was refused."), { field: said.field, data: said.data });
  return said;
}

async function lines(answer, progress) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "", last = {};
  for (;;) {
    const { value, done } = await reader.read();
    text += value ?? "";
    const parts = text.split("\n");
    text = parts.pop();
    for (const part of parts.filter(Boolean)) {
      last = JSON.parse(part);
      if (last.error) throw new Error(last.error);
      if (last.of) progress?.(`${last.did.toLocaleString()} of ${last.of.toLocaleString()}`);
    }
    if (done) return last;
  }
}

async function perform(body) {
  try {
    const said = await act(body, tell);
    if (said.secret) await reveal(said);
    tell(said.told);
    if (said.go) location.assign(said.go);
    else await refresh();
    return true;
  } catch (error) {
    tell(error.message, true);
    return false;
  }
}

function ask(title, content, word, danger = false) {
  const dialog = $("#sure");
  return new Promise((settle) => {
    const form = make("form", { method: "dialog" },
      make("h2", { id: "sure-title" }, title), ...content,
      make("div", { class: "buttons" },
        make("button", { type: "button", class: "quiet", onclick: () => dialog.close("") }, "Back"),
        make("button", { class: danger ? "danger" : "main", value: "yes" }, word)));
    dialog.replaceChildren(form);
    dialog.returnValue = "";
    dialog.onclose = () => settle(dialog.returnValue === "yes" ? form : null);
    dialog.showModal();
    ($("input, textarea", form) ?? $("button[value=yes]", form)).focus();
  });
}

// What is shown this once: it stays until somebody closes it.
function reveal(said) {
  const secret = make("code", { id: "secret", class: "secret", tabindex: "0" }, said.secret);
  const copy = make("button", { type: "button", class: "small", "data-copy": "secret" }, "Copy");
  return ask(said.told, [make("p", {}, "Keep it now: it is not shown again."), secret, copy], "I have it");
}

const WORDS = { cancel: "Cancel", retry: "Retry", rerun: "Rerun", discard: "Discard", postpone: "Postpone", run_now: "Run now" };
const DANGEROUS = new Set(["cancel", "discard"]);

// On many jobs: first how many there are, then whether to go on.
async function onMany(verb, target, extra = {}) {
  try {
    const found = await act({ act: "jobs", verb, ...target, ...extra, dry: true });
    const number = found.count ?? 0;
    if (!number) return tell(`None of them can be ${verb === "retry" ? "retried" : "acted on like this"} now.`, true);
    const jobs = number === 1 ? "1 job" : `${number.toLocaleString()} jobs`;
    const notes = [make("p", {}, verb === "cancel" ? "Workers that run one are asked to stop it." : verb === "retry" ? "Each gets a new budget of attempts." : verb === "rerun" ? "Their work is done again, as new jobs." : verb === "discard" ? "They end as cancelled (discarded)." : "")];
    if (!(await ask(`${WORDS[verb]} ${jobs}?`, notes, `${WORDS[verb]} ${jobs}`, DANGEROUS.has(verb)))) return;
    const chosen = target.ids ? { ids: target.ids } : { filter: found.filter };
    if (await perform({ act: "jobs", verb, ...chosen, ...extra })) unpick();
  } catch (error) {
    tell(error.message, true);
  }
}

// ---- forms

function valueOf(field) {
  const text = field.value;
  switch (field.dataset.type) {
    case "number": return text === "" ? undefined : Number(text);
    case "bool": return field.checked;
    case "each": return field.checked ? text : undefined;
    case "list": return text.split(",").map((one) => one.trim()).filter(Boolean);
    case "text": return text;
    case "json":
      if (text.trim() === "") return undefined;
      try { return JSON.parse(text); } catch (error) {
        throw Object.assign(new Error(`This is no JSON: ${error.message}`), { field: field.name.replace(/^payload\./, "") });
      }
    default: return text === "" ? undefined : text;
  }
}

function collect(form) {
  const body = { ...JSON.parse(form.dataset.fixed ?? "{}") };
  if (form.matches(".submit")) body.payload = {};
  for (const field of $$("[name]", form)) {
    if (field.closest("[hidden]")) continue;
    const value = valueOf(field);
    if (value === undefined) continue;
    const [first, ...rest] = field.name.split(".");
    if (rest.length) (body[first] ??= {})[rest.join(".")] = value;
    else if (field.dataset.type === "each") (body[first] ??= []).push(value);
    else body[first] = value;
  }
  return body;
}

const fieldOf = (form, name) => name && $$("[name]", form).find((one) => one.name === name || one.name === `payload.${name}`);

// What is wrong stands below its field; what concerns none, below the form.
function wrong(form, error) {
  for (const place of $$(".wrong", form)) place.textContent = "";
  for (const field of $$("[aria-invalid]", form)) field.removeAttribute("aria-invalid");
  if (!error) return;
  const field = fieldOf(form, error.field);
  field?.setAttribute("aria-invalid", "true");
  let place = $$(".wrong", form).find((one) => one.dataset.for === (error.field ?? ""));
  if (!place && field) {
    place = make("small", { class: "wrong", "data-for": error.field, "aria-live": "polite" });
    (field.closest("label") ?? field).append(place);
  }
  place ??= $('.wrong[data-for=""]', form);
  if (place) place.textContent = error.message;
  else tell(error.message, true);
}

async function send(form) {
  try {
    const body = { act: form.dataset.act, ...collect(form) };
    const said = await act(body, tell);
    wrong(form);
    if (said.secret) {
      form.reset();
      await reveal(said);
    }
    tell(said.told);
    if (said.go) location.assign(said.go);
    else await refresh();
    return true;
  } catch (error) {
    wrong(form, error);
    return false;
  }
}

// While somebody types: first what the browser knows, then what the server does.
let typing = 0;
const touched = new WeakSet();
function typed(form) {
  clearTimeout(typing);
  typing = setTimeout(async () => {
    const bad = $$("[name]", form).find((one) => touched.has(one) && !one.closest("[hidden]") && !one.validity.valid);
    if (bad) return wrong(form, { field: bad.name.replace(/^payload\./, ""), message: bad.validationMessage });
    try {
      const said = await act({ act: form.dataset.act, trial: true, ...collect(form) });
      wrong(form);
      preview(form, said.data);
    } catch (error) {
      preview(form, error.data);
      const field = fieldOf(form, error.field);
      const begun = $$("[name]", form).some((one) => touched.has(one));
      const comes = !begun || field && !field.value && !touched.has(field) && !field.name.startsWith("payload.");
      wrong(form, comes ? null : error);
    }
  }, 350);
}

function preview(form, fires = []) {
  const body = make("tbody");
  for (const one of fires) {
    const time = make("time", { datetime: one.at, "data-as": "age", title: one.at });
    show(time);
    body.append(make("tr", { class: one.shifted ? "shifted" : "" }, make("td", {}, one.local), make("td", {}, one.offset, ...(one.shifted ? [" ", make("b", {}, "clocks change")] : [])), make("td", {}, time)));
  }
  $(".preview", form)?.replaceChildren(...(fires.length ? [make("p", { class: "soft" }, "Next fires:"), make("table", { class: "rows" }, body)] : []));
}

document.addEventListener("input", (event) => {
  touched.add(event.target);
  const form = event.target.closest("form[data-check]");
  if (form) typed(form);
});

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-switch]")) {
    for (const part of $$("[data-when]", event.target.form)) part.hidden = part.dataset.when !== event.target.value;
    typed(event.target.form);
  } else if (event.target.id === "pick-all") {
    for (const box of $$('input[name="pick"]')) box.checked = event.target.checked;
    choose();
  } else if (event.target.name === "pick") choose();
});

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.dataset.act) {
    event.preventDefault();
    send(form);
  } else if (form.matches(".filters")) {
    // What is empty need not stand in the address.
    for (const field of $$("[name]", form)) if (!field.value) field.disabled = true;
  }
});

for (const zoned of $$("[data-zone]")) zoned.value = zone;
for (const place of $$(".preview")) typed(place.form ?? place.closest("form"));

// ---- choosing jobs

const picked = () => $$('input[name="pick"]:checked').map((box) => box.value);

function choose() {
  const bar = $("#choice");
  if (!bar) return;
  const number = picked().length;
  bar.hidden = !number;
  $("#chosen").textContent = String(number);
}

function unpick() {
  for (const box of $$('input[name="pick"]:checked, #pick-all, #matching')) box.checked = false;
  choose();
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button, [role=option]");
  if (!button) return;
  const data = button.dataset;
  if (data.do) {
    const body = JSON.parse(data.do);
    const [question, more] = (data.sure ?? "").split(/(?<=\?) /), word = button.textContent.trim();
    if (question && !(await ask(question, more ? [make("p", {}, more)] : [], data.word ?? word, button.classList.contains("danger")))) return;
    button.disabled = true;
    await perform(body);
    button.disabled = false;
  } else if (data.open) {
    opened(data.open);
  } else if (data.groupAct) {
    onMany(data.groupAct, { filter: JSON.parse(data.filter) });
  } else if (data.many) {
    const matching = $("#matching").checked;
    let extra = {};
    if (data.ask) {
      const form = await ask(button.textContent.trim(), [document.importNode($(`#${data.ask}`).content, true)], "Continue");
      if (!form) return;
      extra = collect(form);
    }
    onMany(data.many, matching ? { filter: JSON.parse($("#list").dataset.filter) } : { ids: picked() }, extra);
  } else if (button.id === "unpick") {
    unpick();
  } else if (data.copy) {
    await navigator.clipboard?.writeText($(`#${data.copy}`).textContent);
    tell("Copied.");
  }
});

function opened(id) {
  const dialog = $("#sure");
  const form = document.importNode($(`#${id}`).content, true).firstElementChild;
  const word = form.dataset.title;
  form.prepend(make("h2", { id: "sure-title" }, word));
  form.append(make("p", { class: "wrong", "data-for": "", "aria-live": "polite" }), make("div", { class: "buttons" },
    make("button", { type: "button", class: "quiet", onclick: () => dialog.close() }, "Back"), make("button", { class: "main" }, word)));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    event.stopPropagation();
    if (await send(form)) dialog.close();
  });
  dialog.onclose = null;
  dialog.replaceChildren(form);
  dialog.showModal();
  $("input, textarea", form)?.focus();
}

// ---- jumping

const palette = $("#palette");
let looking = 0, wanted = "";

function jump() {
  if (!palette || palette.open) return;
  palette.showModal();
  const input = $("input", palette);
  input.value = "";
  look("");
  input.focus();
}

async function look(text) {
  wanted = text;
  const answer = await fetch(`${base}/find?q=${encodeURIComponent(text)}`, { headers: { accept: "application/json" } });
  if (!answer.ok || wanted !== text) return;
  const found = await answer.json();
  const list = $("#found");
  list.replaceChildren(...found.map((one, index) =>
    make("li", { role: "option", id: `found-${index}`, "aria-selected": index === 0 ? "true" : "false", "data-go": one.address, onclick: () => location.assign(one.address) },
      make("small", {}, one.kind), make("span", {}, one.name), make("small", {}, one.note))));
  if (!found.length) list.append(make("li", { role: "option", "aria-disabled": "true", "aria-selected": "false" }, "Nothing has this name or id."));
  $("input", palette).setAttribute("aria-activedescendant", found.length ? "found-0" : "");
}

if (palette) {
  const input = $("input", palette);
  input.addEventListener("input", () => {
    clearTimeout(looking);
    looking = setTimeout(() => look(input.value.trim()), 120);
  });
  input.addEventListener("keydown", (event) => {
    const options = $$("[data-go]", palette);
    let index = options.findIndex((one) => one.getAttribute("aria-selected") === "true");
    if (event.key === "Enter") {
      event.preventDefault();
      if (options[index]) location.assign(options[index].dataset.go);
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      index = (index + (event.key === "ArrowDown" ? 1 : -1) + options.length) % (options.length || 1);
      options.forEach((one, place) => one.setAttribute("aria-selected", String(place === index)));
      options[index]?.scrollIntoView({ block: "nearest" });
      input.setAttribute("aria-activedescendant", options[index]?.id ?? "");
    }
  });
  palette.addEventListener("click", (event) => event.target === palette && palette.close());
  document.addEventListener("keydown", (event) => {
    const writing = event.target.closest?.("input, textarea, select, [contenteditable]");
    if ((event.key === "k" && (event.ctrlKey || event.metaKey)) || (event.key === "/" && !writing && !event.ctrlKey && !event.metaKey && !event.altKey)) {
      event.preventDefault();
      jump();
    }
  });
}

// ---- a link from elsewhere: the browser kept the session to itself, and this page may ask with it

if (meta("return")) {
  fetch(`${base}/session`).then((answer) => answer.json()).then((said) => said.session && location.replace(meta("return")), () => {});
}

for (const log of $$("[data-follow]")) log.scrollTop = log.scrollHeight;
