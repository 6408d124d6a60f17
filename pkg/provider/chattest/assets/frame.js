// Keeps the page live and its forms in place. Everything works without this file too: forms then reload the page.
"use strict";

const live = document.getElementById("live");
const toast = document.getElementById("toast");
let hide = 0;

function say(text, bad) {
  if (!text) return;
  toast.textContent = text;
  toast.classList.toggle("bad", Boolean(bad));
  toast.hidden = false;
  clearTimeout(hide);
  hide = setTimeout(() => { toast.hidden = true; }, 6000);
}
if (!toast.hidden) say(toast.textContent);

function atEnd(box) {
  return box.scrollHeight - box.scrollTop - box.clientHeight < 60;
}

// Takes the live regions out of a freshly rendered page. The server escapes everything; nothing is built from text here.
function take(text) {
  const fresh = new DOMParser().parseFromString(text, "text/html");
  for (const old of document.querySelectorAll("[data-live]")) {
    const next = fresh.getElementById(old.id);
    if (!next || next.innerHTML === old.innerHTML) continue;
    const open = new Set([...old.querySelectorAll("details[open][data-key]")].map((d) => d.dataset.key));
    const box = old.closest("[data-scroll]") || old;
    const end = atEnd(box), top = box.scrollTop, left = box.scrollLeft;
    const held = old.contains(document.activeElement) && document.activeElement.id;
    old.replaceChildren(...next.childNodes);
    for (const d of old.querySelectorAll("details[data-key]")) d.open = d.open || open.has(d.dataset.key);
    box.scrollTop = box.hasAttribute("data-scroll") && end ? box.scrollHeight : top;
    box.scrollLeft = left;
    if (held) document.getElementById(held)?.focus();
  }
}

let busy = false, again = false;
async function refresh() {
  if (busy) { again = true; return; }
  busy = true;
  try {
    do {
      again = false;
      const answer = await fetch(location.href, { cache: "no-store" });
      if (answer.ok) take(await answer.text());
    } while (again);
  } catch {
    // The stream below notices when the chat is gone.
  } finally {
    busy = false;
  }
}

const stream = new EventSource("/events");
stream.onmessage = refresh;
stream.onopen = () => { live.classList.add("on"); };
stream.onerror = () => { live.classList.remove("on"); };

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.hasAttribute("data-post")) return;
  event.preventDefault();
  // Not form.action: a button named "action" would hide it.
  const data = new URLSearchParams(new FormData(form, event.submitter));
  event.submitter?.classList.add("pressed");
  try {
    const answer = await fetch(form.getAttribute("action"), { method: "POST", body: data, headers: { "X-Requested-With": "page" } });
    const text = await answer.text();
    let note = text;
    try { note = JSON.parse(text).note; } catch { /* plain text is the note */ }
    say(note, !answer.ok);
    if (answer.ok && form.hasAttribute("data-clear")) form.reset();
  } catch (problem) {
    say(String(problem), true);
  } finally {
    event.submitter?.classList.remove("pressed");
    refresh();
  }
});

for (const box of document.querySelectorAll("[data-scroll]")) {
  if (!box.querySelector(":target")) box.scrollTop = box.scrollHeight;
}
document.querySelector(":target")?.scrollIntoView({ block: "center" });
