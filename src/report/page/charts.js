// Curves and bars as SVG, drawn again whenever their width changes.
'use strict';

const svgSpace = 'http://www.w3.org/2000/svg';

function svg(name, attributes, parent, text) {
  const node = document.createElementNS(svgSpace, name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  if (text !== undefined) node.textContent = text;
  if (parent) parent.appendChild(node);
  return node;
}

function html(name, attributes, parent, text) {
  const node = document.createElement(name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  if (text !== undefined) node.textContent = text;
  if (parent) parent.appendChild(node);
  return node;
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
}

function number(value) {
  if (!isFinite(value)) return '–';
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e6 || size < 1e-3)) return value.toExponential(2);
  return String(+value.toPrecision(4));
}

function bytes(value) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < 4) { value /= 1024; ++unit; }
  return +value.toPrecision(4) + ' ' + units[unit];
}

function duration(seconds) {
  const size = Math.abs(seconds);
  if (size >= 1 || size < 1e-12) return +seconds.toPrecision(5) + ' s';
  if (size >= 1e-3) return +(seconds * 1e3).toPrecision(4) + ' ms';
  return +(seconds * 1e6).toPrecision(4) + ' µs';
}

// Round numbers from low to high, about `count` of them.
function ticks(low, high, count, base = 10) {
  const rough = (high - low) / Math.max(1, count);
  if (!(rough > 0)) return [low];
  const power = Math.pow(base, Math.floor(Math.log(rough) / Math.log(base)));
  const factors = base === 10 ? [1, 2, 5, 10] : [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
  const step = power * factors.find(f => f * power >= rough * 0.999);
  const result = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) result.push(i * step);
  return result;
}

function onWidth(box, draw) {
  let last = 0;
  const redraw = () => { if (box.clientWidth > 0) { last = box.clientWidth; draw(last); } };
  new ResizeObserver(() => { if (Math.abs(box.clientWidth - last) > 1) redraw(); }).observe(box);
  redraw();
  return redraw;
}

function tip(box) {
  const node = html('div', {class: 'tip', hidden: ''}, box);
  return {
    show(x, y, text) {
      node.textContent = text;
      node.hidden = false;
      const left = x + 14 + node.offsetWidth > box.clientWidth ? x - node.offsetWidth - 14 : x + 14;
      node.style.left = Math.max(0, left) + 'px';
      node.style.top = Math.max(0, y) + 'px';
    },
    hide() { node.hidden = true; },
  };
}

function describe(root, title, text) {
  svg('title', {}, root, title);
  if (text) svg('desc', {}, root, text);
}

// A curve in words, for those who do not see it.
function summaryOf(series, options, format) {
  const points = series.points.filter(p => p[1] !== null && isFinite(p[1]));
  if (points.length === 0) return '';
  const [first, last] = [points[0], points.at(-1)];
  return `${series.name}: ${format(first[1])} at ${options.x} ${number(first[0])}, ` +
    `${format(last[1])} at ${options.x} ${number(last[0])}.`;
}

// series: [{name, colour, points: [[x, y], ...], steps, band: [[x, low, high], ...]}]; points whose y
// is null leave a gap.
function curves(box, series, options) {
  const format = options.format || number;
  const all = series.flatMap(s => s.points).filter(p => p[1] !== null && isFinite(p[1]));
  if (all.length === 0) { box.textContent = 'No values were recorded.'; return; }
  if (series.length > 1) {
    const legend = html('ul', {class: 'legend'}, box);
    for (const s of series) {
      const item = html('li', {}, legend);
      html('i', {style: `background:var(--${s.colour})`}, item);
      item.append(s.name);
    }
  }
  const place = html('div', {}, box);
  const message = tip(box);
  const xs = all.map(p => p[0]);
  const ys = [...all.map(p => p[1]), ...series.flatMap(s => (s.band || []).flatMap(b => [b[1], b[2]]))].filter(y => y !== null);
  const x0 = options.from ?? xs.reduce((a, b) => Math.min(a, b)), x1 = xs.reduce((a, b) => Math.max(a, b));
  let y0 = ys.reduce((a, b) => Math.min(a, b)), y1 = ys.reduce((a, b) => Math.max(a, b));
  if (options.zero) y0 = Math.min(0, y0);
  const margin = (y1 - y0) * 0.06 || Math.abs(y1) * 0.05 || 1;
  y1 += margin;
  if (!options.zero) y0 -= margin;
  const steps = [...new Set(xs)].sort((a, b) => a - b);
  let chosen = -1;
  onWidth(box, width => {
    place.textContent = '';
    const height = Math.max(190, Math.min(280, width * 0.45));
    const left = 66, right = 24, top = 24, bottom = 36;
    const X = x => left + (x1 > x0 ? (x - x0) / (x1 - x0) : 0.5) * (width - left - right);
    const Y = y => height - bottom - (y - y0) / (y1 - y0) * (height - top - bottom);
    const root = svg('svg', {viewBox: `0 0 ${width} ${height}`, height, role: 'img', tabindex: 0,
      'aria-label': `${options.title}; arrow keys read the values`}, place);
    describe(root, options.title, series.map(s => summaryOf(s, options, format)).join(' '));
    for (const y of ticks(y0, y1, 5, options.base || 10)) {
      svg('line', {class: 'grid', x1: left, x2: width - right, y1: Y(y), y2: Y(y)}, root);
      svg('text', {x: left - 6, y: Y(y) + 4, 'text-anchor': 'end'}, root, format(y));
    }
    for (const x of ticks(x0, x1, Math.min(8, width / 90))) {
      if (options.whole && x !== Math.round(x)) continue;
      svg('line', {class: 'axis', x1: X(x), x2: X(x), y1: height - bottom, y2: height - bottom + 4}, root);
      svg('text', {x: X(x), y: height - bottom + 16, 'text-anchor': 'middle'}, root, number(x));
    }
    svg('line', {class: 'axis', x1: left, x2: width - right, y1: height - bottom, y2: height - bottom}, root);
    svg('text', {x: (left + width - right) / 2, y: height - 3, 'text-anchor': 'middle'}, root, options.x);
    svg('text', {x: 4, y: 12}, root, options.y);
    for (const s of series) {
      if (!s.band) continue;
      const known = s.band.filter(b => b[1] !== null);
      const line = known.map(b => `${X(b[0]).toFixed(1)},${Y(b[2]).toFixed(1)}`)
        .concat(known.reverse().map(b => `${X(b[0]).toFixed(1)},${Y(b[1]).toFixed(1)}`));
      svg('polygon', {class: 'band', points: line.join(' '), style: `fill:var(--${s.colour})`}, root);
    }
    for (const s of series) {
      let path = '', open = false, before = 0;
      for (const [x, y] of s.points) {
        if (y === null || !isFinite(y)) { open = false; continue; }
        if (open && s.steps) path += `L${X(x).toFixed(2)} ${Y(before).toFixed(2)}`;
        path += `${open ? 'L' : 'M'}${X(x).toFixed(2)} ${Y(y).toFixed(2)}`;
        open = true;
        before = y;
      }
      svg('path', {class: 'curve', d: path, style: `stroke:var(--${s.colour})`}, root);
      if (s.points.length <= 60 && !s.steps) {
        for (const [x, y] of s.points) {
          if (y !== null) svg('circle', {cx: X(x), cy: Y(y), r: 2.6, style: `fill:var(--${s.colour})`}, root);
        }
      }
    }
    const cross = svg('line', {class: 'cross', y1: top, y2: height - bottom, visibility: 'hidden'}, root);
    const show = index => {
      chosen = Math.max(0, Math.min(steps.length - 1, index));
      const x = steps[chosen];
      const lines = [`${options.x} ${options.at ? options.at(x) : number(x)}`];
      for (const s of series) {
        const point = s.steps ? s.points.findLast(p => p[0] <= x) : s.points.find(p => p[0] === x);
        if (!point || point[1] === null) continue;
        const band = s.band?.find(b => b[0] === x);
        lines.push(`${s.name}: ${format(point[1])}` + (band ? ` (${format(band[1])} to ${format(band[2])})` : ''));
      }
      cross.setAttribute('x1', X(x));
      cross.setAttribute('x2', X(x));
      cross.setAttribute('visibility', 'visible');
      message.show(X(x), place.offsetTop + top, lines.join('\n'));
    };
    const hide = () => { message.hide(); cross.setAttribute('visibility', 'hidden'); };
    root.addEventListener('pointermove', event => {
      const at = event.clientX - root.getBoundingClientRect().left;
      let low = 0, high = steps.length - 1;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (X(steps[middle]) < at) low = middle + 1; else high = middle;
      }
      show(low > 0 && at - X(steps[low - 1]) < X(steps[low]) - at ? low - 1 : low);
    });
    root.addEventListener('pointerleave', hide);
    root.addEventListener('blur', hide);
    root.addEventListener('keydown', event => {
      const move = {ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9}[event.key];
      if (move === undefined) return;
      event.preventDefault();
      show(chosen + move);
    });
  });
}

// rows: [{name, parts: [bytes of each part], limit}], one stacked bar each.
function bars(box, parts, rows, options) {
  const legend = html('ul', {class: 'legend'}, box);
  parts.forEach((part, i) => {
    if (!rows.some(row => row.parts[i] > 0)) return;
    const item = html('li', {}, legend);
    html('i', {style: `background:var(--part-${i})`}, item);
    item.append(part);
  });
  const place = html('div', {}, box);
  const message = tip(box);
  const sum = row => row.parts.reduce((a, b) => a + b, 0);
  const most = Math.max(1, ...rows.map(sum), ...rows.map(row => row.limit || 0));
  onWidth(box, width => {
    place.textContent = '';
    const left = Math.min(150, width * 0.32), right = 84, bar = 20, step = 28;
    const height = rows.length * step + 6;
    const root = svg('svg', {viewBox: `0 0 ${width} ${height}`, height, role: 'img', 'aria-label': options.title}, place);
    describe(root, options.title, rows.map(row => `${row.name}: ${options.format(sum(row))}.`).join(' '));
    rows.forEach((row, i) => {
      let x = left;
      const y = i * step + 4;
      svg('text', {x: left - 6, y: y + 14, 'text-anchor': 'end'}, root, row.name);
      row.parts.forEach((part, k) => {
        if (!(part > 0)) return;
        const wide = part / most * (width - left - right);
        const rect = svg('rect', {x, y, width: Math.max(0.5, wide), height: bar, style: `fill:var(--part-${k})`}, root);
        rect.addEventListener('pointermove', event => {
          const area = box.getBoundingClientRect();
          message.show(event.clientX - area.left, event.clientY - area.top + 12,
            `${row.name}\n${parts[k]}: ${options.format(part)}` +
            (parts.length > 1 ? ` (${(100 * part / sum(row)).toFixed(1)} %)` : '') +
            (row.limit ? `\nlimit: ${options.format(row.limit)}` : ''));
        });
        rect.addEventListener('pointerleave', message.hide);
        x += wide;
      });
      if (row.limit) {
        const at = left + row.limit / most * (width - left - right);
        svg('line', {class: 'axis', x1: at, x2: at, y1: y - 3, y2: y + bar + 3}, root);
      }
      svg('text', {x: x + 6, y: y + 14}, root, options.format(sum(row)));
    });
  });
}

// rows: [{name, error, fitted}]; a dot each, between minus and plus `range` and a little beyond.
function deviations(box, rows, range) {
  const legend = html('ul', {class: 'legend'}, box);
  for (const [name, of] of [['held out', 'part-1'], ['fitted', 'part-0']]) {
    const item = html('li', {}, legend);
    html('i', {style: `background:var(--${of})`}, item);
    item.append(name);
  }
  const place = html('div', {}, box);
  const message = tip(box);
  const percent = value => (value > 0 ? '+' : '') + (100 * value).toFixed(1) + ' %';
  onWidth(box, width => {
    place.textContent = '';
    const narrow = width < 620, step = narrow ? 30 : 19, left = narrow ? 8 : Math.min(430, width * 0.52), right = 12;
    const height = rows.length * step + 24;
    const X = e => left + (Math.max(-1.1, Math.min(1.1, e / range)) + 1.1) / 2.2 * (width - left - right);
    const root = svg('svg', {viewBox: `0 0 ${width} ${height}`, height, role: 'img', 'aria-label': 'Error of each prediction'}, place);
    describe(root, 'Error of each prediction', rows.map(row => `${row.name}: ${percent(row.error)}.`).join(' '));
    for (const e of [-range, -range / 2, 0, range / 2, range]) {
      svg('line', {class: e === 0 ? 'axis' : 'grid', x1: X(e), x2: X(e), y1: 2, y2: height - 20}, root);
      svg('text', {x: X(e), y: height - 5, 'text-anchor': 'middle'}, root, percent(e));
    }
    rows.forEach((row, i) => {
      const y = i * step + (narrow ? 22 : 12);
      const name = svg('text', narrow ? {x: left, y: y - 8} : {x: left - 8, y: y + 4, 'text-anchor': 'end'}, root, row.name);
      const room = narrow ? width - left - right : left - 16;
      for (let n = row.name.length; n > 8 && name.getComputedTextLength() > room; --n) name.textContent = row.name.slice(0, n) + '…';
      svg('line', {x1: X(0), x2: X(row.error), y1: y, y2: y, class: 'axis'}, root);
      const dot = svg('circle', {cx: X(row.error), cy: y, r: 5, style: `fill:var(--part-${row.fitted ? 0 : 1})`}, root);
      svg('title', {}, dot, `${row.name}: ${percent(row.error)}`);
      dot.addEventListener('pointermove', event => {
        const area = box.getBoundingClientRect();
        message.show(event.clientX - area.left, event.clientY - area.top + 12, `${row.name}\n${percent(row.error)}`);
      });
      dot.addEventListener('pointerleave', message.hide);
    });
  });
}
