// Tables of several rows sort by a column when its head is pressed.
'use strict';

const unitSizes = {B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40, ms: 1e-3};

// The number that a cell begins with, in the same unit throughout; null if there is none.
function cellNumber(text) {
  const found = /^([+-]?[\d.]+(?:e[+-]?\d+)?)\s*([A-Za-z]*)/.exec(text.trim());
  return found && isFinite(+found[1]) ? +found[1] * (unitSizes[found[2]] || 1) : null;
}

// Numbers before texts, and cells without a value last, whichever way the rest goes.
function compareCells(a, b, sign) {
  const empty = [a, b].map(text => text === '' || text === '–');
  if (empty[0] || empty[1]) return empty[0] - empty[1];
  const x = cellNumber(a), y = cellNumber(b);
  if (x !== null && y !== null) return sign * (x - y);
  return sign * ((x === null) - (y === null) || a.localeCompare(b));
}

function sortable(table) {
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  if (body.rows.length < 2) return;
  const before = [...body.rows];
  heads.forEach((head, column) => {
    const name = head.textContent;
    if (!name) return;
    head.textContent = '';
    const press = html('button', {type: 'button', class: 'sort', title: `Sort by ${name}`}, head, name);
    press.addEventListener('click', () => {
      const next = {ascending: 'descending', descending: 'none'}[head.getAttribute('aria-sort')] || 'ascending';
      for (const other of heads) other.removeAttribute('aria-sort');
      if (next !== 'none') head.setAttribute('aria-sort', next);
      const sign = next === 'descending' ? -1 : 1;
      const text = row => row.cells[column]?.textContent ?? '';
      const rows = next === 'none' ? before : [...before].sort((a, b) => compareCells(text(a), text(b), sign));
      body.append(...rows);
    });
  });
}
