/* What the page does beyond HTML; everything stays readable without it.

   - A link to something inside a closed <details> opens it, and focus goes there.
   - Within .ab, whatever carries data-doc="n" lights up together: both rankings, the line, the document.
   - In a .list, the arrow keys, Home and End walk through its [data-item]; Escape closes the open one.
   - An input.filter hides those [data-item] parents of the next .list whose text lacks the words typed. */
"use strict";
(() => {
  const open = (target) => {
    for (let part = target; part; part = part.parentElement) {
      if (part.tagName === "DETAILS") part.open = true;
    }
    const focus = target.tagName === "DETAILS" ? target.querySelector("summary") : target;
    target.scrollIntoView({ block: "nearest" });
    focus.focus({ preventScroll: true });
  };
  const followHash = () => {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    if (target && target.closest("details")) open(target);
  };
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    const target = link && document.getElementById(link.getAttribute("href").slice(1));
    if (target && target.tagName === "DETAILS") {
      event.preventDefault();
      open(target);
      history.replaceState(null, "", link.getAttribute("href"));
    }
  });
  const light = (event) => {
    const part = event.target.closest("[data-doc]");
    document.querySelectorAll(".lit").forEach((lit) => lit.classList.remove("lit"));
    if (!part) return;
    const same = `[data-doc="${part.dataset.doc}"]`;
    part.closest(".ab").querySelectorAll(same).forEach((lit) => lit.classList.add("lit"));
  };
  document.addEventListener("mouseover", light);
  document.addEventListener("focusin", light);

  // Lists stand within lists: a query's documents are no items of the list of queries.
  const itemsOf = (list) => [...list.querySelectorAll("[data-item]")].filter((item) => item.closest(".list") === list);
  document.addEventListener("keydown", (event) => {
    const list = event.target.closest(".list");
    const item = event.target.closest("[data-item]");
    if (event.key === "Escape" && list) {
      const opened = event.target.closest("details[open]");
      if (opened) { opened.open = false; opened.querySelector("summary").focus(); }
    }
    if (!list || event.target !== item) return;
    const items = itemsOf(list).filter((other) => !other.parentElement.hidden);
    const places = { ArrowDown: items.indexOf(item) + 1, ArrowUp: items.indexOf(item) - 1, Home: 0, End: items.length - 1 };
    const next = event.key in places && items[places[event.key]];
    if (next) { event.preventDefault(); next.focus(); }
  });
  document.querySelectorAll("input.filter").forEach((input) => input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    itemsOf(document.getElementById(input.getAttribute("aria-controls"))).forEach((item) => {
      const text = item.textContent.toLowerCase();
      item.parentElement.hidden = !words.every((word) => text.includes(word));
    });
  }));
  addEventListener("hashchange", followHash);
  followHash();
})();
