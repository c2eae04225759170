"use strict";
// Searches what is on the page. Without it everything is there to read.
(() => {
  const form = document.getElementById("filter");
  if (!form) return;
  const text = document.getElementById("f-text");
  const count = document.getElementById("f-count");
  const items = [...document.querySelectorAll("[data-o]")].map((item) => [item, item.textContent.toLowerCase()]);
  const apply = () => {
    const wanted = text.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const [item, words] of items) {
      item.hidden = !wanted.every((word) => words.includes(word));
      shown += item.hidden ? 0 : 1;
    }
    count.value = wanted.length ? `${shown} of ${items.length} shown` : "";
  };
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  apply();
})();
