"use strict";
// Everything is readable without this: it filters nodes, opens them all, and where a server is behind the page, keeps
// it fresh.
const seconds = Number(document.body.dataset.refresh);
const filter = document.getElementById("filter");
const shown = document.getElementById("shown");
const pause = document.getElementById("pause");
const away = document.getElementById("away");

function applyFilter() {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  const counts = [
    ["#nodes details", "nodes"],
    ["#pending tbody tr", "pods waiting"],
  ].map(([selector, what]) => {
    const all = document.querySelectorAll(selector);
    let count = 0;
    for (const each of all) {
      const text = each.textContent.toLowerCase();
      each.hidden = !words.every((word) => text.includes(word));
      count += each.hidden ? 0 : 1;
    }
    return `${count} of ${all.length} ${what}`;
  });
  const said = words.length ? counts.join(", ") : "";
  if (shown.textContent !== said) shown.textContent = said;
}

function openAll(open) {
  for (const node of document.querySelectorAll("#nodes details:not([hidden])")) node.open = open;
}

async function refresh() {
  if (pause.getAttribute("aria-pressed") === "true") return;
  try {
    const answer = await fetch("/", { cache: "no-store" });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("map");
    const open = new Set(Array.from(document.querySelectorAll("details[open]"), (each) => each.id));
    const focused = document.activeElement && document.activeElement.closest("#map [id]");
    for (const each of fresh.querySelectorAll("details")) each.open = open.has(each.id);
    document.getElementById("map").replaceWith(document.adoptNode(fresh));
    applyFilter();
    const again = focused && document.getElementById(focused.id);
    if (again) (again.querySelector("summary") || again).focus({ preventScroll: true });
    away.textContent = "";
  } catch (error) {
    away.textContent = `This page is not fresh: ${error.message}. Trying again.`;
  }
}

let typing;
filter.addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(applyFilter, 150);
});
document.getElementById("open").addEventListener("click", () => openAll(true));
document.getElementById("close").addEventListener("click", () => openAll(false));
for (const tools of document.querySelectorAll(".tools")) tools.hidden = false;
if (seconds > 0) {
  pause.hidden = false;
  pause.addEventListener("click", () => {
    const paused = pause.getAttribute("aria-pressed") !== "true";
    pause.setAttribute("aria-pressed", String(paused));
  });
  setInterval(refresh, seconds * 1000);
}
applyFilter();
