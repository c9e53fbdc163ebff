// What each device did when, on a canvas: wheel or buttons zoom, dragging moves, keys do both.
'use strict';

function timeline(box, trace) {
  const {devices, categories, names, events} = trace;
  const row = 34, bar = 19, strip = 6, top = 26;
  const end = trace.end, least = Math.max(end * 1e-6, 1);
  let from = 0, to = end;
  const tools = html('div', {class: 'tools', role: 'group', 'aria-label': 'Zoom'}, box);
  const legend = html('ul', {class: 'legend'}, box);
  const used = new Set(events.map(e => e[1]));
  categories.forEach((name, i) => {
    if (!used.has(i)) return;
    const item = html('li', {}, legend);
    html('i', {style: `background:var(--${name})`}, item);
    item.append(name);
  });
  const holder = html('div', {class: 'chart'}, box);
  const lanes = html('div', {class: 'lanes'}, holder);
  const canvas = html('canvas', {tabindex: 0, role: 'img',
    'aria-label': 'Timeline of all devices. Plus and minus zoom, arrow keys move, 0 shows everything.'}, lanes);
  const message = tip(holder);
  const byDevice = devices.map(() => []);
  for (const event of events) byDevice[event[0]].push(event);
  const communication = categories.indexOf('communication');
  const left = () => Math.min(118, canvas.clientWidth * 0.28);
  const wide = () => Math.max(1, canvas.clientWidth - left() - 6);

  function draw() {
    const width = lanes.clientWidth, height = top + devices.length * row + 4;
    const scale = Math.min(window.devicePixelRatio || 1, 16000 / height);
    canvas.style.height = height + 'px';
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    const pen = canvas.getContext('2d');
    pen.scale(scale, scale);
    pen.font = '11.5px system-ui, "DejaVu Sans", sans-serif';
    const L = left(), W = wide(), X = t => L + (t - from) / (to - from) * W;
    const colours = categories.map(colour), soft = colour('soft'), split = colour('weight-gradients'), inside = colour('on-bar');
    const step = ticks(from / 1e6, to / 1e6, Math.max(2, W / 110));
    devices.forEach((device, i) => {
      const y = top + i * row;
      pen.fillStyle = colour('lane');
      pen.fillRect(L, y, W, bar);
      pen.fillStyle = soft;
      pen.textAlign = 'right';
      pen.fillText(device, L - 6, y + 14, L - 8);
    });
    pen.strokeStyle = colour('line');
    pen.fillStyle = soft;
    pen.textAlign = 'center';
    const axis = step.length > 1 ? step[1] - step[0] : 1;
    for (const t of step) {
      const x = X(t * 1e6);
      pen.beginPath();
      pen.moveTo(x, top - 6);
      pen.lineTo(x, height);
      pen.stroke();
      const digits = Math.max(0, Math.min(9, -Math.floor(Math.log10(axis))));
      pen.fillText(t.toFixed(digits) + ' s', Math.max(L + 18, Math.min(width - 24, x)), 13);
    }
    pen.save();
    pen.beginPath();
    pen.rect(L, 0, W, height);
    pen.clip();
    byDevice.forEach((list, i) => {
      const y = top + i * row;
      for (const [, category, name, part, begin, length] of list) {
        if (begin > to || begin + length < from) continue;
        const x = X(begin), w = Math.max(0.6, length / (to - from) * W);
        const beside = category === communication;
        pen.fillStyle = category === 1 && names[name].endsWith('weights') ? split : colours[category];
        pen.fillRect(x, beside ? y + bar + 2 : y, w, beside ? strip : bar);
        if (part >= 0 && w > 16 && category < 3) {
          pen.fillStyle = inside;
          pen.fillText(part, Math.max(L + 8, Math.min(L + W - 8, x + w / 2)), y + 14, w - 2);
        }
      }
    });
    pen.restore();
    box.dataset.from = from;
    box.dataset.to = to;
    shown.textContent = `${duration(from / 1e6)} to ${duration(to / 1e6)}`;
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
  for (const [name, action] of actions) html('button', {type: 'button'}, tools, name).addEventListener('click', action);
  if (trace.window) {
    html('button', {type: 'button'}, tools, 'A few steps')
      .addEventListener('click', () => look(trace.window[0], trace.window[1]));
  }
  const shown = html('output', {}, tools);
  const timeAt = event => {
    const share = (event.clientX - canvas.getBoundingClientRect().left - left()) / wide();
    return from + Math.max(0, Math.min(1, share)) * (to - from);
  };
  canvas.addEventListener('wheel', event => {
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
    const moved = sideways ? pan((event.deltaX || event.deltaY) / wide())
                           : zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 300))), timeAt(event));
    if (moved) event.preventDefault();
  }, {passive: false});
  let held = null;
  canvas.addEventListener('pointerdown', event => {
    held = {x: event.clientX, from, to};
    canvas.setPointerCapture(event.pointerId);
    canvas.classList.add('held');
  });
  canvas.addEventListener('pointerup', () => { held = null; canvas.classList.remove('held'); });
  canvas.addEventListener('pointercancel', () => { held = null; canvas.classList.remove('held'); });
  canvas.addEventListener('pointerleave', message.hide);
  canvas.addEventListener('pointermove', event => {
    if (held) {
      const shift = (held.x - event.clientX) / wide() * (held.to - held.from);
      look(held.from + shift, held.to + shift);
      return;
    }
    const area = canvas.getBoundingClientRect();
    const y = event.clientY - area.top - top, index = Math.floor(y / row), t = timeAt(event);
    const inStrip = y - index * row > bar;
    const slack = (to - from) / wide();
    const found = (byDevice[index] || []).findLast(e => (e[1] === communication) === inStrip &&
      e[4] - slack <= t && t <= e[4] + e[5] + slack);
    if (!found) { message.hide(); return; }
    const part = found[3] >= 0 ? `, micro-batch ${found[3]}` : '';
    message.show(event.clientX - area.left, event.clientY - holder.getBoundingClientRect().top + 14,
      `${devices[index]}: ${categories[found[1]]}${part}\n${names[found[2]]}\n` +
      `${duration(found[5] / 1e6)} from ${duration(found[4] / 1e6)}`);
  });
  canvas.addEventListener('keydown', event => {
    const action = {'+': () => zoom(0.5), '=': () => zoom(0.5), '-': () => zoom(2), '0': () => look(0, end),
      ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2)}[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
  if (trace.window) { from = trace.window[0]; to = trace.window[1]; }
  const redraw = onWidth(lanes, draw);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
  addEventListener('beforeprint', redraw);
  addEventListener('afterprint', redraw);
}
