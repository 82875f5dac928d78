// What the page of a study does beyond being read: sort and filter tables, copy and download, tips, theme.
// Without this script every table, figure, caption and link is there all the same.
"use strict";
(() => {
  const root = document.documentElement;
  const each = (selector, action, within = document) => within.querySelectorAll(selector).forEach(action);

  // ---- say: what happened, to eyes and to screen readers -----------------------------------------------------------
  const said = document.getElementById("said");
  let silence = 0;
  function say(text) {
    clearTimeout(silence);
    said.textContent = text;
    said.classList.add("shown");
    silence = setTimeout(() => { said.classList.remove("shown"); said.textContent = ""; }, 4000);
  }

  // ---- theme: light, dark or as the system; remembered -------------------------------------------------------------
  const theme = document.getElementById("theme");
  theme.value = root.dataset.theme ?? "system";
  theme.addEventListener("change", () => {
    if (theme.value === "system") delete root.dataset.theme;
    else root.dataset.theme = theme.value;
    try { localStorage.setItem("polyhead-theme", theme.value); } catch { /* not remembered, but shown */ }
  });

  // ---- published values: shown or hidden ---------------------------------------------------------------------------
  const published = document.getElementById("published");
  published?.addEventListener("change", () => {
    root.classList.toggle("no-published", !published.checked);
    each("figure svg:has([data-tip])", stopAtFirst); // a hidden mark is no stop of the Tab key
  });
  if (published) published.checked = true; // browsers restore a box on reload, but not the page's class

  // ---- tables: sorted by what data-order holds, filtered by a box --------------------------------------------------
  // numbers as numbers; what holds none (a dash, a word) stays below them, whichever way they are sorted
  const rank = (sign) => (a, b) => (a === "" || b === "" ? (a === "") - (b === "") : sign * (a - b));
  DataTable.type("measured", { detect: () => false, order: { asc: rank(1), desc: rank(-1) } });

  function enliven(table) {
    const headers = [...table.tHead.rows[0].cells];
    const numbers = headers.flatMap((cell, i) => ("number" in cell.dataset ? [i] : []));
    const rows = table.tBodies[0].rows.length;
    const live = new DataTable(table, {
      paging: false, info: false, autoWidth: false, order: [],
      layout: { topStart: null, topEnd: null, bottomStart: null, bottomEnd: null },
      columnDefs: [{ targets: numbers, type: "measured" }],
      language: { zeroRecords: "No row holds this.", emptyTable: "No rows." },
    });
    const filter = document.querySelector(`.filter[data-for="${table.id}"]`);
    if (!filter) return;
    const [box, count] = [filter.querySelector("input"), filter.querySelector("output")];
    box.value = "";
    box.addEventListener("input", () => {
      live.search(box.value).draw();
      count.textContent = box.value ? `${live.rows({ search: "applied" }).count()} of ${rows} rows` : "";
    });
  }
  each("table.lively", enliven);

  // ---- the report's files, which the page carries itself -----------------------------------------------------------
  const memo = {};
  const carried = (id) => (memo[id] ??= JSON.parse(document.getElementById(id).textContent));
  const types = { csv: "text/csv", tex: "text/x-tex", yaml: "text/yaml", svg: "image/svg+xml", pdf: "application/pdf" };

  async function fileOf(path) {
    const type = types[path.split(".").pop()];
    const text = carried("texts")[path];
    if (text !== undefined) return new Blob([text], { type });
    const bytes = Uint8Array.from(atob(carried("packed")[path]), (character) => character.charCodeAt(0));
    if (type !== types.svg) return new Blob([bytes], { type });
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Blob([await new Response(stream).arrayBuffer()], { type });
  }

  function download(blob, name) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  }

  each("a[data-file]", (link) => link.addEventListener("click", async (event) => {
    if (!("DecompressionStream" in window)) return; // an old browser follows the link to the file beside the page
    event.preventDefault();
    const path = link.dataset.file;
    download(await fileOf(path), path.split("/").pop());
    say(`${path.split("/").pop()} saved`);
  }));

  // ---- copy: the clipboard, or where there is none a selection and the old command ---------------------------------
  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      const area = document.createElement("textarea");
      const before = document.activeElement;
      area.value = text;
      area.className = "away";
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      before?.focus({ preventScroll: true });
      return done;
    }
  }

  each("button[data-copy]", (button) => button.addEventListener("click", async () => {
    const path = button.dataset.copy;
    const text = path.startsWith("#") ? document.querySelector(path).textContent : carried("texts")[path];
    const done = await copy(text);
    say(done ? `${button.dataset.what} copied` : "This browser does not let the page copy: please download it");
  }));

  // ---- tips: the value of a mark, on hover, tap and focus ----------------------------------------------------------
  const tip = document.getElementById("tip");
  const { autoUpdate, computePosition, flip, offset, shift } = FloatingUIDOM;
  let stop = () => {};
  let pinned = null;

  function hide() {
    stop();
    tip.hidden = true;
    pinned?.classList.remove("pointed");
    pinned = null;
  }

  function show(mark, anchor = mark) {
    hide();
    pinned = mark;
    mark.classList.add("pointed");
    tip.textContent = mark.dataset.tip;
    tip.hidden = false;
    const middleware = [offset(10), flip({ padding: 8 }), shift({ padding: 8 })];
    stop = autoUpdate(anchor, tip, async () => {
      const { x, y } = await computePosition(anchor, tip, { placement: "top", strategy: "fixed", middleware });
      Object.assign(tip.style, { left: `${x}px`, top: `${y}px` });
    });
  }

  // where the pointer is, as Floating UI wants it; a long line or a wide bar has its tip at the pointer
  const point = (mark, x, y) => ({ contextElement: mark, getBoundingClientRect: () => new DOMRect(x, y, 0, 0) });

  // the mark at the pointer, or the nearest within reach: a dot is smaller than a fingertip
  function markAt(x, y, reach) {
    for (let distance = 0; distance <= reach; distance += reach / 2) {
      for (let angle = 0; angle < 2 * Math.PI; angle += Math.PI / 4) {
        const under = document.elementFromPoint(x + distance * Math.cos(angle), y + distance * Math.sin(angle));
        const mark = under?.closest("figure [data-tip]");
        if (mark) return mark;
        if (distance === 0) break;
      }
    }
    return null;
  }

  function pointed(event, reach) {
    const mark = markAt(event.clientX, event.clientY, reach);
    if (!mark) hide();
    else if (mark !== pinned || event.type === "click") show(mark, point(mark, event.clientX, event.clientY));
  }

  const visible = (mark) => mark.getClientRects().length > 0;

  // one stop of the Tab key for each figure; arrows, Home and End go from mark to mark
  function stopAtFirst(svg) {
    const marks = [...svg.querySelectorAll("[data-tip]")];
    marks.forEach((mark) => mark.setAttribute("tabindex", "-1"));
    (marks.find(visible) ?? marks[0]).setAttribute("tabindex", "0");
  }

  function walk(figure, event) {
    const marks = [...figure.querySelectorAll("[data-tip]")].filter(visible);
    const at = marks.indexOf(event.target);
    const steps = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: marks.length - 1 };
    if (at < 0 || !(event.key in steps)) return;
    event.preventDefault();
    const next = marks[Math.min(Math.max(steps[event.key], 0), marks.length - 1)];
    marks[at].setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus();
  }

  each("figure svg:has([data-tip])", (svg) => {
    svg.setAttribute("role", "group"); // an image would hide its marks from a screen reader
    each("[data-tip]", (mark) => {
      mark.setAttribute("role", "img");
      mark.setAttribute("aria-label", mark.dataset.tip.replaceAll("\n", ", "));
    }, svg);
    stopAtFirst(svg);
    const around = svg.parentElement; // an SVG element that listens for focus would become a stop of the Tab key itself
    around.addEventListener("pointermove", (event) => event.pointerType === "mouse" && pointed(event, 6));
    around.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && hide());
    around.addEventListener("click", (event) => pointed(event, 18));
    around.addEventListener("focusin", ({ target }) => target.matches("[data-tip]:focus-visible") && show(target));
    around.addEventListener("focusout", hide);
    around.addEventListener("keydown", (event) => walk(svg, event));
  });
  document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
  document.addEventListener("click", (event) => event.target.closest("figure .scroll") || hide());
})();
