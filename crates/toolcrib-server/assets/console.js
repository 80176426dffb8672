// Script of the web console. It keeps the page up to date with the event stream, searches while the user types, and
// submits forms without leaving the page. It builds no HTML of its own: it fetches the pages that the server renders and
// copies the differences into the document. Every page also works without it.

const main = document.getElementById("main");
const statusRegion = document.getElementById("announcements");
const liveIndicator = document.getElementById("live");
// The style sheet hides elements that are only needed without a script.
document.documentElement.classList.add("script");

/* Fetches a page of the server. `DOMParser` creates a document that runs no scripts and loads no images. */
async function fetchPage(address, options = {}) {
  const response = await fetch(address, { credentials: "same-origin", ...options });
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  return { response, page };
}

/* Buttons of forms that are being submitted. They stay disabled when the page is updated meanwhile, so that a form cannot be
   submitted twice. */
const busyButtons = new Set();

/* Makes a node equal to the new one and leaves equal parts untouched, so that focus, selection and scroll position are kept. */
function updateNode(current, next) {
  // `data-kept` is an empty placeholder: the server omitted this part because the page already has it.
  if (current.isEqualNode(next) || next.dataset?.kept !== undefined) return;
  if (current.nodeType !== Node.ELEMENT_NODE) {
    current.nodeValue = next.nodeValue;
    return;
  }
  // `data-keep` marks an element with user input. It is replaced only if its key changes.
  if (current.dataset.keep !== undefined && current.dataset.keep === next.dataset.keep) return;
  const isDetails = current.localName === "details";
  // Attributes that the user or this script controls, not the server.
  const isLocal = (name) => (isDetails && name === "open") || (name === "disabled" && busyButtons.has(current));
  for (const { name } of [...current.attributes]) {
    if (!next.hasAttribute(name) && !isLocal(name)) current.removeAttribute(name);
  }
  for (const { name, value } of next.attributes) {
    if (current.getAttribute(name) !== value && !isLocal(name)) current.setAttribute(name, value);
  }
  updateChildren(current, next);
}

/* Makes the children of an element equal to those of the new one. Children with an id are matched by id, others by position
   and element name. */
function updateChildren(current, next) {
  const currentById = new Map([...current.children].filter((child) => child.id).map((child) => [child.id, child]));
  const nextIds = new Set([...next.children].map((child) => child.id));
  let cursor = skipErrorMessages(current.firstChild);
  for (const nextChild of [...next.childNodes]) {
    const match = nextChild.id && currentById.get(nextChild.id);
    if (match) {
      // Obsolete elements before the match are removed first, so that the match need not move: an element that moves
      // loses the focus.
      while (cursor && cursor !== match && cursor.id && !nextIds.has(cursor.id)) {
        const obsolete = cursor;
        cursor = skipErrorMessages(cursor.nextSibling);
        obsolete.remove();
      }
      if (match === cursor) cursor = skipErrorMessages(cursor.nextSibling);
      else current.insertBefore(match, cursor);
      updateNode(match, nextChild);
    } else if (cursor && !cursor.id && !nextChild.id && cursor.nodeName === nextChild.nodeName) {
      const reused = cursor;
      cursor = skipErrorMessages(cursor.nextSibling);
      updateNode(reused, nextChild);
    } else {
      current.insertBefore(document.importNode(nextChild, true), cursor);
    }
  }
  while (cursor) {
    const obsolete = cursor;
    cursor = skipErrorMessages(cursor.nextSibling);
    obsolete.remove();
  }
}

/* Returns the first node, from `node` on, that the server rendered. Error messages of forms are inserted by `showError`; they
   are not on the new page, and stay until the form is submitted again. */
function skipErrorMessages(node) {
  while (node?.dataset?.complaint !== undefined) node = node.nextSibling;
  return node;
}

/* Copies the content and the navigation of a fetched page into the document. */
function applyPage(page) {
  const nextMain = page.getElementById("main");
  if (!nextMain) return;
  for (const [current, next] of [[main, nextMain], [document.getElementById("pages"), page.getElementById("pages")]]) {
    if (current && next) updateChildren(current, next);
  }
  showCopyButtons();
}

let isRefreshing = false;
let refreshAgain = false;
/* A source is being removed. It may be the subject of this page, for which a refresh would show an error page. */
let isLeaving = false;
/* An event that may have added a version to the tool's history arrived since the last refresh. */
let historyMayHaveChanged = false;

/* Fetches the current page again. Runs at most one request at a time: calls during a request cause one more afterwards. */
async function refresh() {
  // `data-static` marks a page with unsaved input, or one that shows a new token.
  if (isLeaving || main.querySelector("[data-static]")) return;
  if (isRefreshing) {
    refreshAgain = true;
    return;
  }
  isRefreshing = true;
  // The server reads the history of a tool from the store, which is expensive. It omits the history for this header, and
  // the page keeps the one it has.
  const headers = historyMayHaveChanged ? {} : { "X-Keep-History": "yes" };
  historyMayHaveChanged = false;
  try {
    const address = location.href;
    const { response, page } = await fetchPage(address, { headers });
    // A search may have changed the address during the request. A 404 page is shown: the subject was removed.
    if (address === location.href && (response.ok || response.status === 404)) applyPage(page);
  } catch {
    // The server is unreachable. The next event or the periodic refresh tries again.
  }
  // Limits a burst of events to about four refreshes per second.
  await new Promise((resolve) => setTimeout(resolve, 250));
  isRefreshing = false;
  if (refreshAgain) {
    refreshAgain = false;
    refresh();
  } else {
    refreshWhilePending();
  }
}

/* Refreshes soon if the server is still computing a part of the page, such as token counts. */
function refreshWhilePending() {
  if (main.querySelector("[data-pending]")) setTimeout(refresh, 400);
}

const EVENT_TYPES = ["record", "source", "progress", "discovered", "call", "catalog", "lost"];
let eventStream = null;
let callRefreshTimer = 0;

/* Opens the event stream. Hidden pages have none, because a browser allows only a few connections per host. */
function openEventStream() {
  if (eventStream || document.hidden || !liveIndicator) return;
  eventStream = new EventSource("/api/events");
  eventStream.onopen = () => { liveIndicator.hidden = false; };
  eventStream.onmessage = handleEvent;
  EVENT_TYPES.forEach((type) => eventStream.addEventListener(type, handleEvent));
  eventStream.onerror = () => {
    liveIndicator.hidden = true;
    // The browser reconnects after a lost connection, but not after an error status.
    if (eventStream && eventStream.readyState === EventSource.CLOSED) {
      eventStream = null;
      setTimeout(() => { historyMayHaveChanged = true; refresh(); openEventStream(); }, 5000);
    }
  };
}

function handleEvent(event) {
  let data = {};
  try {
    data = JSON.parse(event.data) ?? {};
  } catch {
    // The type of the event is enough to decide on a refresh.
  }
  if (!affectsPage(event.type, data)) return;
  if (event.type === "record" || event.type === "lost") historyMayHaveChanged = true;
  // There may be hundreds of calls per second; they refresh the page once a second.
  if (event.type !== "call") refresh();
  else callRefreshTimer ||= setTimeout(() => { callRefreshTimer = 0; refresh(); }, 1000);
}

/* Returns whether this page shows data that the event may have changed. */
function affectsPage(type, data) {
  const { source, tool, own: originalName } = main.querySelector(":scope > .head")?.dataset ?? {};
  // `lost` means that events were dropped; `message` is the type of events without a type.
  if (["lost", "catalog", "message"].includes(type)) return true;
  if (tool !== undefined) {
    // A call event contains the name from the request, which can be any of the names of the tool.
    if (type === "call") return data.source === source && (data.tool === tool || data.tool.endsWith(originalName));
    return type === "record" && (data.source ?? source) === source;
  }
  if (source !== undefined) return (data.source ?? data.id ?? source) === source;
  switch (location.pathname) {
    case "/sources": return type !== "call";
    case "/tools": return type === "record" || (type === "call" && listsToolsOf(data.source ?? ""));
    case "/access": return type === "record";
    case "/activity": return ["record", "discovered", "call"].includes(type);
    default: return true;
  }
}

/* Returns whether the page with the tools has a tool of the source. */
function listsToolsOf(source) {
  return main.querySelector(`#found a[href="/sources/${CSS.escape(source)}"]`) !== null;
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) {
    historyMayHaveChanged = true;
    refresh();
    openEventStream();
  } else if (eventStream) {
    eventStream.close();
    eventStream = null;
    liveIndicator.hidden = true;
  }
});
addEventListener("pagehide", () => eventStream && eventStream.close());
// Times are shown relative to now ("2 minutes ago") and change without an event.
setInterval(() => document.hidden || refresh(), 30000);

/* Submits a form with the request that the browser would send without the script, and stays on the page. */
async function submitForm(form, submitter) {
  const data = new URLSearchParams(new FormData(form, submitter));
  const button = submitter ?? form.querySelector("button");
  const hadFocus = document.activeElement === button;
  button.disabled = true;
  busyButtons.add(button);
  // `data-follow` marks a form that removes a source.
  isLeaving = form.dataset.follow !== undefined;
  form.querySelector(":scope > .message")?.remove();
  try {
    const { response, page } = await fetchPage(form.action, { method: "POST", body: data });
    if (form.dataset.call !== undefined) return showCallResult(form, page);
    if (!response.ok) {
      isLeaving = false;
      return showError(form, errorMessage(page));
    }
    announce(`${button.textContent.trim()}: ${await describeOutcome(response, page)}`);
    if (isLeaving && new URL(response.url).pathname !== location.pathname) return location.assign(response.url);
    isLeaving = false;
    const addForm = form.closest("details.add");
    if (!addForm) return refresh();
    form.reset();
    addForm.open = false;
    await refresh();
    // The new source may be outside the visible part of the page.
    const added = document.getElementById(`source-${new URL(response.url).pathname.split("/").at(-1)}`);
    added?.scrollIntoView({ block: "nearest" });
    return added?.querySelector("a")?.focus({ preventScroll: true });
  } catch {
    isLeaving = false;
    return showError(form, "The server cannot be reached.");
  } finally {
    button.disabled = false;
    busyButtons.delete(button);
    // A disabled button loses the focus. Keyboard users continue from the button, or from the start of the content if the
    // button disappears with the removed source.
    const remains = button.isConnected && (form.dataset.follow === undefined || form.querySelector(":scope > .message"));
    if (hadFocus && document.activeElement === document.body) (remains ? button : main).focus({ preventScroll: true });
  }
}

/* Shows the result of a tool call below its form. */
function showCallResult(form, page) {
  const nextResult = page.getElementById("answer");
  if (!nextResult) return showError(form, errorMessage(page));
  const result = document.getElementById("answer");
  // Not `updateNode`: the element has `data-keep`, so that a refresh keeps the result.
  updateChildren(result, nextResult);
  result.scrollIntoView({ block: "nearest" });
  return refresh();
}

/* Returns the state after an action, from the page that the server redirected to. Waits up to a second for a source that is
   being discovered. */
async function describeOutcome(response, page) {
  const findState = (page) => page.querySelector("#main .standing .state");
  let state = findState(page);
  for (let attempt = 0; state?.classList.contains("busy") && attempt < 5; attempt += 1) {
    await new Promise((resolve) => setTimeout(resolve, 200));
    state = findState((await fetchPage(response.url)).page);
  }
  if (state) return state.textContent;
  const failing = page.querySelectorAll("#source-rows .state.bad, #source-rows .state.warning").length;
  return failing > 0 ? `done, ${failing} with errors` : "done";
}

/* Returns the message of an error page: its second paragraph, after the status and the error code. */
function errorMessage(page) {
  const errorPage = page.querySelector(".refusal");
  return errorPage ? [...errorPage.querySelectorAll("p")].slice(1, 2).map((p) => p.textContent).join("") : "Request failed.";
}

/* Shows an error message at the end of a form. */
function showError(form, text) {
  let message = form.querySelector(":scope > .message");
  if (!message) {
    message = document.createElement("p");
    message.className = "message";
    message.setAttribute("role", "alert");
    message.dataset.complaint = "";
    form.append(message);
  }
  message.textContent = text;
  message.scrollIntoView({ block: "nearest" });
}

/* Announces a text to screen readers. The region is emptied first, because they do not read an unchanged text again. */
function announce(text) {
  statusRegion.textContent = "";
  requestAnimationFrame(() => { statusRegion.textContent = text; });
}

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.dataset.act === undefined && form.dataset.call === undefined) return;
  event.preventDefault();
  submitForm(form, event.submitter);
});

// Arguments given as JSON replace those of the fields, so the fields are not validated.
document.addEventListener("input", ({ target }) => {
  if (target.name === "arguments" && target.form) target.form.noValidate = target.value.trim() !== "";
});

let searchTimer = 0;
let searchRequest = null;

/* Fetches the address that the form would navigate to, and replaces only the results, so that the search field is untouched. */
async function search(form) {
  const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== ""));
  const address = `${form.getAttribute("action")}?${query}`;
  searchRequest?.abort();
  searchRequest = new AbortController();
  try {
    const { page } = await fetchPage(address, { signal: searchRequest.signal });
    const [current, next] = [document.getElementById("found"), page.getElementById("found")];
    history.replaceState(null, "", address);
    if (current && next) updateChildren(current, next);
    refreshWhilePending();
  } catch {
    // A newer search aborted this one, or the server is unreachable.
  }
}
document.addEventListener("input", (event) => {
  const form = event.target.form;
  if (form?.dataset.search === undefined) return;
  clearTimeout(searchTimer);
  // A delay between keystrokes; selections in a list take effect at once.
  searchTimer = setTimeout(() => search(form), event.target.type === "search" ? 120 : 0);
});
document.addEventListener("submit", (event) => {
  if (event.target.dataset.search === undefined) return;
  event.preventDefault();
  search(event.target);
});

let previewTimer = 0;
let previewRequest = null;

/* Sends a form as its first button would, and replaces only the preview, so that the fields are untouched. */
async function showPreview(form) {
  const preview = form.dataset.preview;
  const fields = new URLSearchParams(new FormData(form));
  const action = form.getAttribute("action");
  const [address, options] = form.method === "post" ? [action, { method: "POST", body: fields }] : [`${action}?${fields}`, {}];
  previewRequest?.abort();
  previewRequest = new AbortController();
  try {
    const { page } = await fetchPage(address, { ...options, signal: previewRequest.signal });
    const current = document.getElementById(preview);
    // The page of a form with errors has the list of them instead.
    const [next, errors] = [page.getElementById(preview), page.querySelector("#preview .errors")];
    if (next) updateChildren(current, next);
    else if (errors) current.replaceChildren(document.importNode(errors, true));
    else current.textContent = errorMessage(page);
    const summaries = [...current.querySelectorAll("[data-announce]")];
    announce(summaries.length > 0 ? summaries.map((summary) => summary.textContent).join(" ") : current.textContent);
  } catch {
    // A newer preview aborted this one, or the server is unreachable.
  }
}
document.addEventListener("input", (event) => {
  const form = event.target.form;
  if (form?.dataset.preview === undefined) return;
  clearTimeout(previewTimer);
  previewTimer = setTimeout(() => showPreview(form), 200);
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
  announce("Copied");
});

/* Shows the copy buttons. Browsers have no clipboard API on plain HTTP, except on loopback. */
function showCopyButtons() {
  if (navigator.clipboard) document.querySelectorAll("[data-copy]").forEach((button) => { button.hidden = false; });
}

/* Opens the form and focuses its first field if the address has the fragment `#add`. */
function openAddForm() {
  const addForm = location.hash === "#add" && document.querySelector("details.add");
  if (!addForm) return;
  addForm.open = true;
  addForm.querySelector("input[name=name]").focus();
  addForm.scrollIntoView({ block: "start" });
}
// After `load`, because the browser scrolls to the fragment by itself until then.
addEventListener("load", () => setTimeout(openAddForm));
addEventListener("hashchange", openAddForm);
document.addEventListener("click", (event) => {
  // A second click on the link does not change the fragment, and so fires no `hashchange`.
  if (event.target.closest('a[href="#add"]') && location.hash === "#add") openAddForm();
});

/* Confirmations. They close like a dialog: with Escape, or with a click elsewhere. */

document.addEventListener("keydown", (event) => {
  const confirmation = event.key === "Escape" && document.querySelector("details.sure[open]");
  if (!confirmation) return;
  confirmation.open = false;
  confirmation.querySelector("summary").focus();
});
document.addEventListener("click", (event) => {
  for (const confirmation of document.querySelectorAll("details.sure[open]")) {
    confirmation.open = confirmation.contains(event.target);
  }
});

showCopyButtons();
openEventStream();
refreshWhilePending();
