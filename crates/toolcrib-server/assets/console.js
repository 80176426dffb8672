// What a page does beyond being read: it follows what happens, searches as one types, and sends forms without
// leaving. It builds no HTML: all it shows is what the server rendered, taken from the same pages.

const main = document.getElementById("main");
const told = document.getElementById("told");
const live = document.getElementById("live");
document.documentElement.classList.add("script");

/* A page of the server, as a document that runs nothing. */
async function load(address, options = {}) {
  const response = await fetch(address, { credentials: "same-origin", ...options });
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  return { response, page };
}

/* Buttons whose forms are under way; they are not pressed twice, whatever the page becomes meanwhile. */
const sending = new Set();

/* Makes an element like a fresh one without touching what is the same, so that focus, selection and scrolling stay. */
function become(old, fresh) {
  if (old.isEqualNode(fresh) || fresh.dataset?.kept !== undefined) return;
  if (old.nodeType !== Node.ELEMENT_NODE) {
    old.nodeValue = fresh.nodeValue;
    return;
  }
  if (old.dataset.keep !== undefined && old.dataset.keep === fresh.dataset.keep) return;
  const opened = old.localName === "details";
  const ours = (name) => (opened && name === "open") || (name === "disabled" && sending.has(old));
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !ours(name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value && !ours(name)) old.setAttribute(name, value);
  }
  becomeWithin(old, fresh);
}

/* From a node on, the first that the server rendered: what a form complains of stays until it is sent again. */
function rendered(node) {
  while (node?.dataset?.complaint !== undefined) node = node.nextSibling;
  return node;
}

function becomeWithin(old, fresh) {
  const named = new Map([...old.children].filter((child) => child.id).map((child) => [child.id, child]));
  const wanted = new Set([...fresh.children].map((child) => child.id));
  let at = rendered(old.firstChild);
  for (const next of [...fresh.childNodes]) {
    const known = next.id && named.get(next.id);
    if (known) {
      // What goes is taken away first, for what is moved loses its focus.
      while (at && at !== known && at.id && !wanted.has(at.id)) {
        const gone = at;
        at = rendered(at.nextSibling);
        gone.remove();
      }
      if (known === at) at = rendered(at.nextSibling);
      else old.insertBefore(known, at);
      become(known, next);
    } else if (at && !at.id && !next.id && at.nodeName === next.nodeName) {
      const same = at;
      at = rendered(at.nextSibling);
      become(same, next);
    } else {
      old.insertBefore(document.importNode(next, true), at);
    }
  }
  while (at) {
    const gone = at;
    at = rendered(at.nextSibling);
    gone.remove();
  }
}

function take(page) {
  const fresh = page.getElementById("main");
  if (!fresh) return;
  for (const [old, next] of [[main, fresh], [document.getElementById("pages"), page.getElementById("pages")]]) {
    if (old && next) becomeWithin(old, next);
  }
  ready();
}

/* What came of a form stays until the next one; everything else may be asked for again at any time. */
let refreshing = false;
let again = false;
let leaving = false;
let past = false;
async function refresh() {
  if (leaving) return;
  if (refreshing) {
    again = true;
    return;
  }
  refreshing = true;
  // A tool's past is read from the store: it is asked for again only when something was recorded.
  const headers = past ? {} : { "X-Past-Kept": "yes" };
  past = false;
  try {
    const address = location.href;
    const { response, page } = await load(address, { headers });
    // Meanwhile a search may have gone elsewhere.
    if (address === location.href && (response.ok || response.status === 404)) take(page);
  } catch {
    // The server is away; the next event or the next minute tries again.
  }
  await new Promise((done) => setTimeout(done, 250));
  refreshing = false;
  if (again) {
    again = false;
    refresh();
  } else if (main.querySelector("[data-pending]")) {
    setTimeout(refresh, 400);
  }
}

/* Live: one stream, closed while nobody looks, for a browser has few connections to give. */
const KINDS = ["record", "source", "progress", "discovered", "call", "catalog", "lost"];
let stream = null;

/* Whether what happened shows on this page. */
function concerns(kind, data) {
  const { source, tool, own } = main.querySelector(":scope > .head")?.dataset ?? {};
  if (["lost", "catalog", "message"].includes(kind)) return true;
  if (tool !== undefined) {
    // A call is told by the name it was asked for, of which there are several.
    if (kind === "call") return data.source === source && (data.tool === tool || data.tool.endsWith(own));
    return kind === "record" && (data.source ?? source) === source;
  }
  if (source !== undefined) return (data.source ?? data.id ?? source) === source;
  switch (location.pathname) {
    case "/sources": return kind !== "call";
    case "/tools": return kind === "record" || (kind === "call" && main.querySelector(`#found a[href="/sources/${CSS.escape(data.source ?? "")}"]`) !== null);
    case "/activity": return ["record", "discovered", "call"].includes(kind);
    default: return true;
  }
}

/* Calls may come by the hundred; they are shown once a second. */
let called = 0;
function happened(event) {
  let data = {};
  try {
    data = JSON.parse(event.data) ?? {};
  } catch {
    // It is followed all the same.
  }
  if (!concerns(event.type, data)) return;
  if (event.type === "record" || event.type === "lost") past = true;
  if (event.type !== "call") refresh();
  else called ||= setTimeout(() => { called = 0; refresh(); }, 1000);
}

function follow() {
  if (stream || document.hidden || !live) return;
  stream = new EventSource("/api/events");
  stream.onopen = () => { live.hidden = false; };
  stream.onmessage = happened;
  KINDS.forEach((kind) => stream.addEventListener(kind, happened));
  stream.onerror = () => {
    live.hidden = true;
    if (stream && stream.readyState === EventSource.CLOSED) {
      stream = null;
      setTimeout(() => { past = true; refresh(); follow(); }, 5000);
    }
  };
}
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) {
    past = true;
    refresh();
    follow();
  } else if (stream) {
    stream.close();
    stream = null;
    live.hidden = true;
  }
});
addEventListener("pagehide", () => stream && stream.close());
// Times are told as how long ago they were.
setInterval(() => document.hidden || refresh(), 30000);

function tell(words) {
  told.textContent = "";
  requestAnimationFrame(() => { told.textContent = words; });
}

/* What a page of refusal says, for the form that asked. */
function refusal(page) {
  const said = page.querySelector(".refusal");
  return said ? [...said.querySelectorAll("p")].slice(1, 2).map((p) => p.textContent).join("") : "That did not work.";
}

function complain(form, words) {
  let place = form.querySelector(":scope > .message");
  if (!place) {
    place = document.createElement("p");
    place.className = "message";
    place.setAttribute("role", "alert");
    place.dataset.complaint = "";
    form.append(place);
  }
  place.textContent = words;
  place.scrollIntoView({ block: "nearest" });
}

/* Forms are sent as they would be without script; only the page stays. */
async function send(form, submitter) {
  const data = new URLSearchParams(new FormData(form, submitter));
  const button = submitter ?? form.querySelector("button");
  const focused = document.activeElement === button;
  button.disabled = true;
  sending.add(button);
  // What is being removed has no page to be refreshed.
  leaving = form.dataset.follow !== undefined;
  form.querySelector(":scope > .message")?.remove();
  try {
    const { response, page } = await load(form.action, { method: "POST", body: data });
    if (form.dataset.call !== undefined) return answer(form, response, page);
    if (!response.ok) {
      leaving = false;
      return complain(form, refusal(page));
    }
    tell(`${button.textContent.trim()}: ${await came(response, page)}`);
    if (leaving && new URL(response.url).pathname !== location.pathname) return location.assign(response.url);
    leaving = false;
    const add = form.closest("details.add");
    if (!add) return refresh();
    form.reset();
    add.open = false;
    await refresh();
    // What was added is shown, for it may stand far above.
    const added = document.getElementById(`source-${new URL(response.url).pathname.split("/").at(-1)}`);
    added?.scrollIntoView({ block: "nearest" });
    return added?.querySelector("a")?.focus({ preventScroll: true });
  } catch {
    leaving = false;
    return complain(form, "The server cannot be reached.");
  } finally {
    button.disabled = false;
    sending.delete(button);
    // Who pressed it with a key goes on from there, unless it goes with what was removed.
    const stays = button.isConnected && (form.dataset.follow === undefined || form.querySelector(":scope > .message"));
    if (focused && document.activeElement === document.body) (stays ? button : main).focus({ preventScroll: true });
  }
}

/* How what was done stands now, by the page that the server answers with. */
async function came(response, page) {
  const find = (page) => page.querySelector("#main .standing .state");
  let state = find(page);
  for (let times = 0; state?.classList.contains("busy") && times < 5; times += 1) {
    await new Promise((done) => setTimeout(done, 200));
    state = find((await load(response.url)).page);
  }
  if (state) return state.textContent;
  const failing = page.querySelectorAll("#source-rows .state.bad, #source-rows .state.warning").length;
  return failing > 0 ? `done, ${failing} with errors` : "done";
}

function answer(form, response, page) {
  const fresh = page.getElementById("answer");
  if (!fresh) return complain(form, refusal(page));
  const place = document.getElementById("answer");
  becomeWithin(place, fresh);
  place.scrollIntoView({ block: "nearest" });
  return refresh();
}

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.dataset.act === undefined && form.dataset.call === undefined) return;
  event.preventDefault();
  send(form, event.submitter);
});

/* Search as one types: the same address the form would go to, of which only what was found is taken. */
let typed = 0;
let asking = null;
async function search(form) {
  const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== ""));
  const address = `${form.getAttribute("action")}?${query}`;
  asking?.abort();
  asking = new AbortController();
  try {
    const { page } = await load(address, { signal: asking.signal });
    const [old, fresh] = [document.getElementById("found"), page.getElementById("found")];
    history.replaceState(null, "", address);
    if (old && fresh) becomeWithin(old, fresh);
    if (main.querySelector("[data-pending]")) setTimeout(refresh, 400);
  } catch {
    // Another letter was typed meanwhile.
  }
}
document.addEventListener("input", (event) => {
  const form = event.target.form;
  if (form?.dataset.search === undefined) return;
  clearTimeout(typed);
  typed = setTimeout(() => search(form), event.target.type === "search" ? 120 : 0);
});
document.addEventListener("submit", (event) => {
  if (event.target.dataset.search === undefined) return;
  event.preventDefault();
  search(event.target);
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
  tell("Copied");
});

function ready() {
  if (navigator.clipboard) document.querySelectorAll("[data-copy]").forEach((button) => { button.hidden = false; });
}

ready();
follow();
if (main.querySelector("[data-pending]")) setTimeout(refresh, 400);

/* A link to the form opens it and goes to its first field. */
function led() {
  const add = location.hash === "#add" && document.querySelector("details.add");
  if (!add) return;
  add.open = true;
  add.querySelector("input[name=name]").focus();
  add.scrollIntoView({ block: "start" });
}
// Where an address leads, a browser goes itself once all is there.
addEventListener("load", () => setTimeout(led));
addEventListener("hashchange", led);
document.addEventListener("click", (event) => {
  // The same address again is no change of it.
  if (event.target.closest('a[href="#add"]') && location.hash === "#add") led();
});

/* What asks whether one is sure is left as one leaves a dialog. */
document.addEventListener("keydown", (event) => {
  const open = event.key === "Escape" && document.querySelector("details.sure[open]");
  if (!open) return;
  open.open = false;
  open.querySelector("summary").focus();
});
document.addEventListener("click", (event) => {
  document.querySelectorAll("details.sure[open]").forEach((open) => { open.open = open.contains(event.target); });
});

/* Who gives all arguments as JSON is not asked to put the fields right. */
document.addEventListener("input", ({ target }) => {
  if (target.name === "arguments" && target.form) target.form.noValidate = target.value.trim() !== "";
});
