// What each device did when, on a canvas: wheel, pinch or buttons zoom, dragging moves, keys do both.
'use strict';

const lane = {row: 34, bar: 19, strip: 6, top: 26, head: 20};

// Where the devices' rows stand, one below the other, each group of several under its name.
function placeRows(devices) {
  const groups = new Set(devices.map(device => device.group));
  let y = lane.top, group = null;
  const heads = [];
  const tops = devices.map(device => {
    if (groups.size > 1 && device.group !== group) {
      group = device.group;
      heads.push({name: group, y});
      y += lane.head;
    }
    y += lane.row;
    return y - lane.row;
  });
  return {tops, heads, height: y + 4};
}

function timelineLegend(box, trace) {
  const used = new Set(trace.events.map(event => event[1]));
  for (const device of trace.devices) {
    (device.bins || []).forEach((share, i) => { if (share > 0) used.add(i % trace.categories.length); });
  }
  const legend = html('ul', {class: 'legend'}, box);
  trace.categories.forEach((name, i) => {
    if (!used.has(i)) return;
    const item = html('li', {}, legend);
    html('i', {style: `background:var(--${name})`}, item);
    item.append(name);
  });
  if (trace.names.some(name => name.endsWith('weights'))) {
    const item = html('li', {}, legend);
    html('i', {style: 'background:var(--weight-gradients)'}, item);
    item.append('backward to weights');
  }
}

// The part of a list, sorted by begin and not overlapping much, that may reach into a span.
function firstAt(list, time, longest) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle][4] < time - longest) low = middle + 1; else high = middle;
  }
  return low;
}

function timeline(box, trace) {
  const {devices, categories, names, events, end} = trace;
  const least = Math.max(end * 1e-7, 1);
  let from = trace.window ? trace.window[0] : 0, to = trace.window ? trace.window[1] : end;
  const rows = placeRows(devices);
  const tools = html('div', {class: 'tools', role: 'group', 'aria-label': 'Zoom'}, box);
  timelineLegend(box, trace);
  const holder = html('div', {class: 'chart'}, box);
  const lanes = html('div', {class: 'lanes'}, holder);
  const canvas = html('canvas', {tabindex: 0, role: 'img',
    'aria-label': `Timeline of ${devices.length} devices. Plus and minus zoom, arrow keys move, 0 shows everything.`}, lanes);
  const message = tip(holder);
  const byDevice = devices.map(() => []), longest = devices.map(() => 0);
  for (const event of events) {
    byDevice[event[0]].push(event);
    longest[event[0]] = Math.max(longest[event[0]], event[5]);
  }
  const communication = categories.indexOf('communication'), wait = categories.indexOf('wait');
  const left = () => Math.min(118, canvas.clientWidth * 0.28);
  const wide = () => Math.max(1, canvas.clientWidth - left() - 6);

  function drawAxis(pen, X, width, height) {
    const L = left(), W = wide();
    let steps = ticks(from / 1e6, to / 1e6, Math.max(3, W / 100));
    if (steps.length < 2) steps = ticks(from / 1e6, to / 1e6, 4);
    const unit = steps.length > 1 ? steps[1] - steps[0] : (to - from) / 1e6;
    const digits = Math.max(0, Math.min(9, Math.ceil(-Math.log10(unit) - 1e-9)));
    pen.strokeStyle = colour('line');
    pen.fillStyle = colour('soft');
    pen.textAlign = 'center';
    let free = -Infinity;
    for (const t of steps) {
      const x = X(t * 1e6), text = t.toFixed(digits) + ' s', half = pen.measureText(text).width / 2;
      pen.beginPath();
      pen.moveTo(x, lane.top - 6);
      pen.lineTo(x, height);
      pen.stroke();
      const at = Math.max(L + half, Math.min(width - half - 2, x));
      if (at - half < free + 6) continue;
      free = at + half;
      pen.fillText(text, at, 13);
    }
  }

  function drawLanes(pen, width) {
    const L = left(), W = wide();
    pen.textAlign = 'left';
    for (const head of rows.heads) {
      pen.fillStyle = colour('ink');
      pen.fillText(head.name, 0, head.y + 14);
      pen.fillStyle = colour('line');
      pen.fillRect(pen.measureText(head.name).width + 8, head.y + 10, width, 1);
    }
    pen.textAlign = 'right';
    devices.forEach((device, i) => {
      pen.fillStyle = colour('lane');
      pen.fillRect(L, rows.tops[i], W, lane.bar);
      pen.fillStyle = colour('soft');
      pen.fillText(device.name, L - 6, rows.tops[i] + 14, L - 8);
    });
  }

  // Shares of each part of the time: computing from below, waiting from above.
  function drawBins(pen, device, y, X, colours) {
    const size = categories.length, count = device.bins.length / size, length = end / count;
    const last = Math.min(count - 1, Math.floor(to / length));
    for (let i = Math.max(0, Math.floor(from / length)); i <= last; ++i) {
      const begin = i * length, stop = begin + length;
      const spans = [[begin, Math.min(stop, device.detail[0])], [Math.max(begin, device.detail[1]), stop]];
      for (const [a, b] of spans) {
        if (b <= a) continue;
        const x = X(a), w = Math.max(0.6, X(b) - x + 0.3);
        let base = y + lane.bar;
        for (let c = 0; c < size; ++c) {
          const share = device.bins[i * size + c] / 100;
          if (share <= 0) continue;
          pen.fillStyle = colours[c];
          if (c === communication) {
            pen.fillRect(x, y + lane.bar + 2 + lane.strip * (1 - share), w, lane.strip * share);
          } else if (c === wait) {
            pen.fillRect(x, y, w, lane.bar * share);
          } else {
            base -= lane.bar * share;
            pen.fillRect(x, Math.max(y, base), w, lane.bar * share);
          }
        }
      }
    }
  }

  function drawEvents(pen, i, y, X, colours) {
    const L = left(), W = wide(), split = colour('weight-gradients'), inside = colour('on-bar');
    const list = byDevice[i];
    pen.textAlign = 'center';
    for (let k = firstAt(list, from, longest[i]); k < list.length; ++k) {
      const [, category, name, part, begin, length] = list[k];
      if (begin > to) break;
      if (begin + length < from) continue;
      const x = X(begin), w = Math.max(0.6, length / (to - from) * W);
      const beside = category === communication;
      pen.fillStyle = category === 1 && names[name].endsWith('weights') ? split : colours[category];
      pen.fillRect(x, beside ? y + lane.bar + 2 : y, w - (w > 4 ? 0.7 : 0), beside ? lane.strip : lane.bar);
      if (part >= 0 && category < 3 && w > 8 + 6.5 * String(part).length) {
        pen.fillStyle = inside;
        const a = Math.max(L, x), b = Math.min(L + W, x + w);
        if (b - a > 4 + 6.5 * String(part).length) pen.fillText(part, (a + b) / 2, y + 14);
      }
    }
  }

  function draw() {
    const width = lanes.clientWidth, height = rows.height;
    const scale = Math.min(window.devicePixelRatio || 1, 16000 / height);
    canvas.style.height = height + 'px';
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    const pen = canvas.getContext('2d');
    pen.scale(scale, scale);
    pen.font = '11.5px system-ui, "DejaVu Sans", sans-serif';
    const L = left(), W = wide(), X = t => L + (t - from) / (to - from) * W;
    const colours = categories.map(colour);
    drawLanes(pen, width);
    drawAxis(pen, X, width, height);
    pen.save();
    pen.beginPath();
    pen.rect(L, 0, W, height);
    pen.clip();
    devices.forEach((device, i) => {
      if (device.bins) drawBins(pen, device, rows.tops[i], X, colours);
      drawEvents(pen, i, rows.tops[i], X, colours);
    });
    pen.restore();
    box.dataset.from = from;
    box.dataset.to = to;
    shown.textContent = `${duration(from / 1e6)} to ${duration(to / 1e6)} (${duration((to - from) / 1e6)})`;
  }

  function look(a, b) {
    const span = Math.max(least, Math.min(end, b - a));
    const begin = Math.max(0, Math.min(end - span, a));
    if (begin === from && begin + span === to) return false;
    from = begin;
    to = begin + span;
    message.hide();
    draw();
    return true;
  }
  const zoom = (factor, at = (from + to) / 2) => look(at - (at - from) * factor, at + (to - at) * factor);
  const pan = share => look(from + share * (to - from), to + share * (to - from));

  const actions = [['Zoom in', () => zoom(0.5)], ['Zoom out', () => zoom(2)], ['Earlier', () => pan(-0.4)],
    ['Later', () => pan(0.4)], ['All', () => look(0, end)]];
  if (trace.window) actions.push(['A few steps', () => look(...trace.window)]);
  for (const [name, action] of actions) html('button', {type: 'button'}, tools, name).addEventListener('click', action);
  const shown = html('output', {}, tools);
  const timeAt = x => {
    const share = (x - canvas.getBoundingClientRect().left - left()) / wide();
    return from + Math.max(0, Math.min(1, share)) * (to - from);
  };

  function tell(event) {
    const area = canvas.getBoundingClientRect(), y = event.clientY - area.top, t = timeAt(event.clientX);
    const index = rows.tops.findIndex(top => top <= y && y < top + lane.row);
    const inStrip = index >= 0 && y - rows.tops[index] > lane.bar;
    const slack = (to - from) / wide(), device = devices[index];
    const found = (byDevice[index] || []).findLast(e => (e[1] === communication) === inStrip &&
      e[4] - slack <= t && t <= e[4] + e[5] + slack);
    const at = [event.clientX - area.left, event.clientY - holder.getBoundingClientRect().top + 14];
    if (found) {
      const part = found[3] >= 0 ? `, micro-batch ${found[3]}` : '';
      message.show(...at, `${device.name}: ${categories[found[1]]}${part}\n${names[found[2]]}\n` +
        `${duration(found[5] / 1e6)} from ${duration(found[4] / 1e6)}`);
    } else if (device?.bins && (t < device.detail[0] || t > device.detail[1])) {
      const size = categories.length, length = end / (device.bins.length / size), bin = Math.floor(t / length);
      const shares = categories.map((name, c) => [name, device.bins[bin * size + c]]).filter(s => s[1] > 0);
      message.show(...at, `${device.name}: ${duration(length / 1e6)} from ${duration(bin * length / 1e6)}\n` +
        shares.map(([name, share]) => `${name} ${share} %`).join('\n'));
    } else {
      message.hide();
    }
  }

  canvas.addEventListener('wheel', event => {
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
    const moved = sideways ? pan((event.deltaX || event.deltaY) / wide())
                           : zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 300))), timeAt(event.clientX));
    if (moved) event.preventDefault();
  }, {passive: false});

  // One pointer drags; two keep the times under them, which zooms.
  const held = new Map();
  const hold = () => { for (const pointer of held.values()) pointer.time = timeAt(pointer.x); };
  const release = event => {
    held.delete(event.pointerId);
    hold();
    canvas.classList.toggle('held', held.size > 0);
  };
  canvas.addEventListener('pointerdown', event => {
    if (held.size === 2) return;
    held.set(event.pointerId, {x: event.clientX, time: 0});
    canvas.setPointerCapture(event.pointerId);
    canvas.classList.add('held');
    hold();
  });
  canvas.addEventListener('pointerup', release);
  canvas.addEventListener('pointercancel', release);
  canvas.addEventListener('pointerleave', message.hide);
  canvas.addEventListener('pointermove', event => {
    const pointer = held.get(event.pointerId);
    if (!pointer) { if (held.size === 0) tell(event); return; }
    pointer.x = event.clientX;
    const origin = canvas.getBoundingClientRect().left + left();
    const [a, b] = [...held.values()];
    if (!b) {
      const span = to - from, begin = a.time - (a.x - origin) / wide() * span;
      look(begin, begin + span);
    } else if (Math.abs(a.x - b.x) > 8 && a.time !== b.time) {
      const perPixel = Math.abs((b.time - a.time) / (b.x - a.x)), begin = a.time - (a.x - origin) * perPixel;
      look(begin, begin + perPixel * wide());
    }
  });
  canvas.addEventListener('keydown', event => {
    const action = {'+': () => zoom(0.5), '=': () => zoom(0.5), '-': () => zoom(2), '0': () => look(0, end),
      ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2)}[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  });
  const redraw = onWidth(lanes, draw);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
  addEventListener('beforeprint', redraw);
  addEventListener('afterprint', redraw);
}
