/* The service's page beyond page.js; without it, forms and links do the same by loading pages.

   - "/" goes to the question; the arrow down goes from there to the first result or example.
   - Moving the strength slider asks at once and puts the new rankings in place of the old. */
"use strict";
(() => {
  const form = document.querySelector("form.search");
  if (!form) return;
  const box = form.elements.q;
  // The heading stays; the window and its history bear the question.
  const entitle = () => { document.title = box.value.trim() ? `${box.value.trim()} · lastpage` : "lastpage"; };
  entitle();
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest("input, textarea, select");
    if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      box.focus();
      box.select();
    } else if (event.key === "ArrowDown" && event.target === box) {
      const first = document.querySelector(".list [data-item]");
      if (first) { event.preventDefault(); first.focus(); }
    }
  });

  const slider = form.elements.level;
  if (!slider) return;
  const names = slider.dataset.names.split("\n").map((line) => line.split("\t"));
  const output = form.querySelector("output");
  let asked = 0;
  const ask = async () => {
    const result = document.getElementById("result");
    if (!result || !box.value.trim()) return;
    const mine = ++asked;
    const address = "/?" + new URLSearchParams(new FormData(form));
    result.setAttribute("aria-busy", "true");
    try {
      const answer = await fetch(address, { headers: { Accept: "text/html" } });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (mine !== asked) return;  // the slider has moved on
      const fresh = page.getElementById("result");
      if (!fresh) { location.assign(address); return; }
      result.replaceWith(fresh);
      history.replaceState(null, "", address);
      entitle();
    } catch {
      if (mine === asked) location.assign(address);
    }
  };
  slider.addEventListener("input", () => {
    const [arm, strength] = names[slider.value];
    output.textContent = `${strength} (${arm})`;
  });
  slider.addEventListener("change", ask);
})();
