// Switches among the answers that the page holds, and draws them with uPlot. Numbers and sentences come from the study.
(() => {
  "use strict";
  const panels = JSON.parse(document.getElementById("panels").textContent);
  const GREY = "#6a6a6e", LINE = "#e8e8ea";
  const format = new Intl.NumberFormat("en", { maximumFractionDigits: 1 }).format;
  const date = uPlot.fmtDate("{D} {MMM} {YYYY}"), day = uPlot.fmtDate("{D} {MMM}"), month = uPlot.fmtDate("{MMM} {YYYY}");
  const local = (time) => uPlot.tzDate(new Date(time * 1e3), "Etc/UTC");
  const chosen = (panel, name) => {
    const input = panel.querySelector(`input[name="${panel.id}-${name}"]:checked`);
    return input ? Number(input.value) : 0;
  };

  // A chart that a mouse, a finger on its buttons, and the keyboard can read and zoom.
  function draw(panel, data, series, bands, zoom, onzoom) {
    const place = panel.querySelector(".chart");
    const axis = { stroke: GREY, grid: { stroke: LINE, width: 1 }, ticks: { stroke: LINE, width: 1 }, font: "12px sans-serif" };
    const times = (_, marks, at, space, step) => marks.map((time) => (step < 28 * 86400 ? day : month)(local(time)));
    const size = () => ({ width: Math.max(place.clientWidth, 280), height: place.clientWidth < 600 ? 300 : 380 });
    const value = (_, number) => (number == null ? "–" : format(number));
    const whole = [data[0][0], data[0].at(-1)];
    place.replaceChildren();
    const chart = new uPlot({
      ...size(),
      tzDate: local,
      cursor: { y: false, drag: { x: true, y: false } },
      scales: { y: { range: (_, low, high) => [Math.min(low ?? 0, 0), 1.05 * (high || 1)] } },
      axes: [{ ...axis, values: times, space: 70, grid: { show: false } }, { ...axis, label: "GPUs", labelFont: "12px sans-serif", size: 58, values: (_, marks) => marks.map(format) }],
      series: [{ label: "day", value: (_, time) => (time == null ? "–" : date(local(time))) },
        ...series.map((each) => ({ points: { show: false }, value, ...each }))],
      bands,
      hooks: { setScale: [(plot) => onzoom?.([plot.scales.x.min, plot.scales.x.max])] },
    }, data, place);
    const see = (low, high) => chart.setScale("x", { min: Math.max(low, whole[0]), max: Math.min(high, whole[1]) });
    const scale = (factor) => {
      const { min, max } = chart.scales.x, at = chart.cursor.idx;
      const middle = at == null ? (min + max) / 2 : data[0][at], half = (max - min) * factor / 2;
      if (2 * half > 4 * 86400) see(middle - half, middle + half);
    };
    const move = (steps) => {
      const at = chart.cursor.idx ?? chart.valToIdx((chart.scales.x.min + chart.scales.x.max) / 2);
      const to = Math.min(Math.max(at + steps, 0), data[0].length - 1);
      chart.setCursor({ left: chart.valToPos(data[0][to], "x"), top: 0 });
      const shown = [...place.querySelectorAll(".u-series")].map((row) => [...row.children].map((cell) => cell.textContent).join(" "));
      panel.querySelector(".spoken").textContent = shown.filter((entry) => !entry.endsWith("–")).join(", ");
    };
    const acts = { in: () => scale(0.5), out: () => scale(2), all: () => see(...whole) };
    panel.querySelectorAll("[data-act]").forEach((button) => (button.onclick = acts[button.dataset.act]));
    const keys = { ArrowLeft: () => move(-1), ArrowRight: () => move(1), PageUp: () => move(-7), PageDown: () => move(7),
      "+": acts.in, "=": acts.in, "-": acts.out, 0: acts.all };
    place.onkeydown = (event) => {
      if (!keys[event.key] || event.ctrlKey || event.metaKey) return;
      keys[event.key]();
      event.preventDefault();
    };
    place.querySelectorAll(".u-series").forEach((row) => row.querySelector("th").tabIndex = -1);
    panel.resize = () => chart.setSize(size());
    if (zoom) see(...zoom);
    return chart;
  }

  // Steps last until the next.
  const lasting = ({ x }, y, times) => {
    let at = 0;
    return times.map((time) => {
      while (x[at + 1] <= time) at += 1;
      return y[at];
    });
  };
  const pick = (table, wait, share, level) => table[wait][share][level];

  function outlook(panel, content) {
    const lines = content.lines, first = lines.length + 1;
    const looks = lines.map((line) => ({ label: line.label, stroke: line.color || "rgba(31, 95, 168, 0.3)", width: line.color ? 1.3 : 0.6 }));
    const step = { width: 2.4, paths: uPlot.paths.stepped({ align: 1 }) };
    const series = [...looks, { label: "required", stroke: "#1f5fa8", ...step }, { label: "installed", stroke: "#8b1a1a", ...step }];
    const ends = lines.flatMap((line, at) => (line.color ? [] : [at + 1]));
    const bands = [0, 2].filter((at) => at + 1 < ends.length).map((at) => ({
      series: [ends[at], ends[at + 1]], fill: `rgba(31, 95, 168, ${at ? 0.3 : 0.16})` }));
    let seen = null;
    const show = () => {
      const cell = ["wait", "share", "level"].map((name) => chosen(panel, name)), order = chosen(panel, "order");
      const { required, installed } = content;
      const data = uPlot.join([...lines.map((line) => [line.x, line.y]), [installed.x, lasting(required, pick(required.y, ...cell), installed.x),
        installed.y[order]]]).map((column) => Array.from(column, (each) => each ?? null)); // no value of another day
      // The page begins with the answer to what was asked for.
      const stated = content.choices.every((each) => each.name === "order" || chosen(panel, each.name) === each.chosen);
      panel.querySelector(".said").textContent = stated ? "" : pick(content.said, ...cell);
      panel.querySelector(".leads").textContent = content.orders[order];
      draw(panel, data, series, bands, seen, (zoom) => (seen = zoom));
    };
    return show;
  }

  function demand(panel, content) {
    let before = null;
    const lines = (rows, by) => {
      const marked = [...panel.querySelectorAll("tbody input:checked")].map((input) => Number(input.value));
      const shown = rows.map((row, at) => [row, at]).filter(([row, at]) => row[0] != null && marked.includes(at));
      const colors = content.colors, answer = content.answers[by], period = chosen(panel, "period");
      const series = shown.map(([row, at]) => ({ label: row[1], stroke: colors[at % colors.length], width: 1.6,
        dash: at < colors.length ? [] : [5, 3] }));
      draw(panel, [content.x, content.total, ...shown.map(([row]) => answer.y[row[0]])],
        [{ label: "all", stroke: "#1c1c1f", width: 1.3 }, ...series], [], content.spans[period]);
    };
    return () => {
      const by = chosen(panel, "by"), period = chosen(panel, "period"), answer = content.answers[by];
      const rows = answer.rows[period], body = panel.querySelector("tbody"), key = `${by} ${period}`;
      panel.querySelector(".said").textContent = answer.said[period];
      panel.querySelector(".noun").textContent = panel.querySelector(`input[name="${panel.id}-by"]:checked`).dataset.label;
      if (before !== key) {
        before = key;
        body.replaceChildren(...rows.map(([place, name, ...cells], at) => {
          const row = document.createElement("tr"), head = row.appendChild(document.createElement("th"));
          const label = head.appendChild(document.createElement(place == null ? "span" : "label"));
          head.scope = "row";
          if (place != null) {
            const input = label.appendChild(document.createElement("input")), color = document.createElement("i");
            Object.assign(input, { type: "checkbox", value: at, checked: at < 5, onchange: () => lines(rows, by) });
            color.style.background = content.colors[at % content.colors.length];
            label.append(color);
          }
          label.append(name);
          cells.forEach((text) => (row.insertCell().textContent = text));
          return row;
        }));
      }
      lines(rows, by);
    };
  }

  const kinds = { outlook, demand }, shows = [];
  for (const [name, content] of Object.entries(panels)) {
    const panel = document.getElementById(`explore-${name}`), show = kinds[name](panel, content);
    panel.querySelectorAll("fieldset").forEach((each) => each.addEventListener("change", show));
    shows.push([panel, show]);
  }
  document.documentElement.classList.add("live");
  try {
    shows.forEach(([panel, show]) => {
      show();
      new ResizeObserver(() => panel.resize()).observe(panel.querySelector(".chart"));
    });
  } catch (error) {
    document.documentElement.classList.remove("live"); // the still page answers
    throw error;
  }
})();
