"use strict";
// Filters what is on the page. Without it everything is there to read.
(() => {
  const form = document.getElementById("filter");
  const field = (name) => document.getElementById("f-" + name);
  const items = [...document.querySelectorAll("[data-o]")];
  const sections = [...document.querySelectorAll("[data-section]")];
  const words = new Map(); // of each item, lower case, made when first asked for

  let changed = false;

  const text = (item) => {
    if (!words.has(item)) words.set(item, item.textContent.toLowerCase());
    return words.get(item);
  };

  const apply = () => {
    const wanted = field("text").value.toLowerCase().split(/\s+/).filter(Boolean);
    const [group, level, outcome] = ["g", "l", "o"].map((name) => field(name).value);
    const filtered = wanted.length > 0 || group || level || outcome;
    if (!filtered && !changed) return; // everything is there already
    changed = filtered;
    const shown = { card: 0, req: 0 };
    const total = { card: 0, req: 0 };
    for (const item of items) {
      const kind = item.classList.contains("card") ? "card" : "req";
      const visible =
        (!group || item.dataset.g.split(" ").includes(group)) &&
        (!level || item.dataset.l === level) &&
        (!outcome || item.dataset.o === outcome) &&
        wanted.every((word) => text(item).includes(word));
      item.hidden = !visible;
      total[kind] += 1;
      shown[kind] += visible ? 1 : 0;
    }
    for (const section of sections) section.hidden = filtered && !section.querySelector("[data-o]:not([hidden])");
    field("count").value = filtered
      ? `${shown.req} of ${total.req} requirements, ${shown.card} of ${total.card} problems shown`
      : "";
  };

  // A link to something that is filtered away or folded shows it.
  const reveal = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    if (target.closest("[hidden]")) {
      form.reset();
      apply();
    }
    const fold = target.closest("details");
    if (fold) fold.open = true;
    target.scrollIntoView();
  };

  let pending = 0;
  form.addEventListener("input", () => {
    clearTimeout(pending);
    pending = setTimeout(apply, 120);
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(apply));
  addEventListener("hashchange", reveal);
  addEventListener("beforeprint", () => {
    for (const card of document.querySelectorAll(".card")) card.open = true;
  });
  form.hidden = false;
  apply(); // a browser that comes back to the page keeps what was typed
  if (location.hash) reveal();
})();
