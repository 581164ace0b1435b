// Draws the page of a plan or of a run from the data beside it. Every name in the data is text: nothing here parses markup.
'use strict';

const data = JSON.parse(document.getElementById('data').textContent);
const tip = document.getElementById('tip');
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function element(kind, text, parent, className) {
  const made = document.createElement(kind);
  if (text !== undefined && text !== null) made.textContent = text;
  if (className) made.className = className;
  if (parent) parent.append(made);
  return made;
}

function showTip(event, text) {
  if (!text) return hideTip();
  tip.textContent = text;
  tip.style.display = 'block';
  const x = event.clientX + 14, y = event.clientY + 14;
  tip.style.left = Math.max(4, Math.min(x, innerWidth - tip.offsetWidth - 8)) + 'px';
  tip.style.top = (y + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 10 : y) + 'px';
}
function hideTip() { tip.style.display = 'none'; }

// --- Numbers --------------------------------------------------------------------------------------------------------------

function size(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let unit = 0;
  while (bytes >= 1023.95 && unit + 1 < units.length) bytes /= 1024, ++unit;
  return (unit ? bytes.toFixed(1) : bytes) + ' ' + units[unit];
}
function seconds(ns) {
  const value = Math.abs(ns);
  if (value >= 999.5e6) return (value >= 999.5e9 ? Math.round(ns / 1e9) : (ns / 1e9).toPrecision(3)) + ' s';
  return value >= 999.5e3 ? (ns / 1e6).toPrecision(3) + ' ms' : (ns / 1e3).toFixed(1) + ' us';
}
// Labels of an axis, all in the unit of the latest moment, with enough decimals to tell them apart.
function moments(values) {
  const [unit, name] = [[1e9, 's'], [1e6, 'ms'], [1e3, 'us']].find(([unit]) => values[values.length - 1] >= unit * 0.9995) || [1e3, 'us'];
  const step = values.length > 1 ? values[1] - values[0] : values[0];
  const decimals = Math.min(Math.max(0, Math.ceil(-Math.log10(step / unit) - 1e-6)), 6);
  return values.map((value) => value === 0 ? '0' : (value / unit).toFixed(decimals) + ' ' + name);
}
// Round steps of 1, 2 or 5 times a power of ten (of two, for bytes), about `count` of them.
function ticks(from, to, count, binary) {
  const rough = (to - from) / count;
  if (!(rough > 0)) return [from];
  const power = binary ? 2 ** Math.ceil(Math.log2(rough)) : 10 ** Math.floor(Math.log10(rough));
  const step = binary ? power : [1, 2, 5, 10].map((factor) => factor * power).find((value) => value >= rough);
  const values = [];
  for (let i = Math.ceil(from / step - 1e-9); i * step <= to * (1 + 1e-9); ++i) values.push(i * step);
  return values;
}

// --- A picture: a canvas that is drawn again when its size or the colours change ------------------------------------------

const pictures = [];
class Picture {
  constructor(parent, height, draw) {
    this.canvas = element('canvas', null, parent);
    this.canvas.style.height = height + 'px';
    this.height = height;
    this.draw = draw;
    pictures.push(this);
    new ResizeObserver(() => this.paint()).observe(this.canvas);
    this.canvas.addEventListener('pointerleave', hideTip);
  }
  paint() {
    const ratio = devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    const context = this.canvas.getContext('2d');
    context.scale(ratio, ratio);
    context.font = '11px system-ui, sans-serif';
    this.draw(context, this.width, this.height);
  }
}
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => pictures.forEach((picture) => picture.paint()));

function timeAxis(context, left, right, y, from, to, top) {
  context.textAlign = 'center';
  const times = ticks(from, to, Math.max(2, (right - left) / 110)), names = moments(times);
  for (const [i, tick] of times.entries()) {
    const x = left + (tick - from) / (to - from) * (right - left);
    context.fillStyle = colour('--grid');
    context.fillRect(Math.round(x), top, 1, y - top);
    context.fillStyle = colour('--quiet');
    context.fillText(names[i], Math.min(Math.max(x, left + 4), right - 14), y + 14);
  }
}

function legend(parent, entries) {
  const line = element('div', null, parent, 'legend');
  for (const [name, hue] of entries) {
    const entry = element('span', null, line);
    element('i', null, entry).style.background = `var(${hue})`;
    entry.append(name);
  }
}

// --- Sections -------------------------------------------------------------------------------------------------------------

function tiles(list) {
  const grid = element('div', null, document.body, 'tiles');
  for (const [name, value] of list) {
    const tile = element('div', null, grid, 'tile');
    element('b', value, tile);
    element('span', name, tile);
  }
}

function table({title, note, columns, rows}) {
  const section = element('section', null, document.body);
  element('h2', title, section);
  if (note) element('p', note, section);
  const made = element('table', null, element('div', null, section, 'scroll'));
  if (columns.length) {
    const head = element('tr', null, element('thead', null, made));
    for (const [name, kind] of columns) element('th', name, head, kind);
  }
  const body = element('tbody', null, made);
  for (const row of rows) {
    const line = element('tr', null, body);
    row.forEach((cell, i) => element(columns.length || i ? 'td' : 'th', cell, line, columns.length ? columns[i][1] : ''));
  }
}

const kCategoryHues = ['--c0', '--c1', '--c2', '--c3', '--c4'];

function tierPictures(tiers) {
  const section = element('section', null, document.body);
  element('h2', 'Tiers over one step', section);
  element('p', `${tiers.note} The line is the budget, the dashes the peak that is reserved.`, section);
  legend(section, tiers.categories.map((name, i) => [name, kCategoryHues[i]]));
  for (const tier of tiers.list) {
    element('p', `${tier.name}: ${size(tier.peak_bytes)} of ${size(tier.budget_bytes)}`, section);
    const left = 70, top = 8, bottom = 24;
    const most = tier.peak_bytes * 1.06;
    const picture = new Picture(section, 170, (context, width, height) => {
      const base = height - bottom, right = width - 8, columns = tier.columns[0].length;
      const y = (bytes) => base - bytes / most * (base - top);
      timeAxis(context, left, right, base, 0, tiers.step_ns, top);
      context.textAlign = 'right';
      for (const tick of ticks(0, most, 4, true)) {
        context.fillStyle = colour('--grid');
        context.fillRect(left, Math.round(y(tick)), right - left, 1);
        context.fillStyle = colour('--quiet');
        context.fillText(size(tick), left - 6, y(tick) + 4);
      }
      const below = new Float64Array(columns);
      tier.columns.forEach((bytes, category) => {
        context.fillStyle = colour(kCategoryHues[category]);
        context.beginPath();
        const x = (column) => left + column / columns * (right - left);
        context.moveTo(left, y(below[0]));
        for (let column = 0; column < columns; ++column) {
          context.lineTo(x(column), y(below[column] + bytes[column]));
          context.lineTo(x(column + 1), y(below[column] + bytes[column]));
        }
        for (let column = columns - 1; column >= 0; --column) {
          context.lineTo(x(column + 1), y(below[column]));
          context.lineTo(x(column), y(below[column]));
        }
        context.fill();
        for (let column = 0; column < columns; ++column) below[column] += bytes[column];
      });
      context.fillStyle = colour('--mark');
      if (tier.budget_bytes <= most) context.fillRect(left, y(tier.budget_bytes), right - left, 1.5);
      context.strokeStyle = colour('--text');
      context.setLineDash([5, 4]);
      context.beginPath();
      context.moveTo(left, y(tier.peak_bytes));
      context.lineTo(right, y(tier.peak_bytes));
      context.stroke();
      context.setLineDash([]);
    });
    picture.canvas.addEventListener('pointermove', (event) => {
      const columns = tier.columns[0].length;
      const at = Math.floor((event.offsetX - left) / (picture.width - 8 - left) * columns);
      if (at < 0 || at >= columns) return hideTip();
      const lines = tiers.categories.map((name, i) => [name, tier.columns[i][at]]).filter(([, bytes]) => bytes > 0).map(([name, bytes]) => `${name}: ${size(bytes)}`);
      showTip(event, [`at ${seconds(at / columns * tiers.step_ns)}`, ...lines.reverse()].join('\n'));
    });
  }
}

const kKindHues = {forward: '--c0', backward: '--c3', update: '--c2', read: '--c6', write: '--c5'};
const kPlainHue = '--c7';

// Operations of a lane may overlap because several requests are under way: each goes to the first free track.
function tracksOf(begin, end, ids) {
  const free = [], track = new Map();
  for (const id of [...ids].sort((a, b) => begin[a] - begin[b])) {
    let at = free.findIndex((time) => time <= begin[id]);
    if (at < 0) at = free.length < 4 ? free.push(0) - 1 : free.indexOf(Math.min(...free));
    free[at] = end[id];
    track.set(id, at);
  }
  return {track, count: Math.max(1, free.length)};
}

function lanes(timeline) {
  const {ops, kinds, units} = timeline;
  const section = element('section', null, document.body);
  const tools = element('div', null, section, 'tools');
  element('h2', 'Lanes', section);
  element('p', timeline.note, section);
  legend(section, [...kinds.filter((kind) => kKindHues[kind]).map((kind) => [kind, kKindHues[kind]]), ['other', kPlainHue]]);
  const rows = [];
  for (const [lane, name] of timeline.lanes.entries()) {
    const ids = ops.lane.map((_, id) => id).filter((id) => ops.lane[id] === lane);
    for (const what of timeline.recorded ? ['planned', 'recorded'] : ['planned']) {
      const begin = ops[what + '_begin'], end = ops[what + '_end'];
      const done = ids.filter((id) => end[id] > begin[id]).sort((a, b) => begin[a] - begin[b]);
      rows.push({name, what, begin, end, done, ...tracksOf(begin, end, done)});
    }
  }
  const left = timeline.recorded ? 132 : 82, rowHeight = 30, gap = 6, top = 18;
  const last = Math.max(...rows.map((row) => row.done.reduce((most, id) => Math.max(most, row.end[id]), 0)), 1);
  let from = 0, to = last;
  const place = (width, time) => left + (time - from) / (to - from) * (width - 8 - left);
  const topOf = (row) => top + row * (rowHeight + gap);
  const describe = (id) => {
    const lines = [`operation ${id}: ${kinds[ops.kind[id]]}`];
    if (ops.unit[id] >= 0) lines.push(units[ops.unit[id]]);
    if (ops.micro_batch[id] >= 0) lines.push(`micro-batch ${ops.micro_batch[id]}`);
    if (ops.bytes[id] > 0) lines.push(size(ops.bytes[id]));
    for (const what of timeline.recorded ? ['planned', 'recorded'] : ['planned']) {
      const begin = ops[what + '_begin'][id], end = ops[what + '_end'][id];
      lines.push(end > begin ? `${what}: ${seconds(begin)} to ${seconds(end)} (${seconds(end - begin)})` : `${what}: not run`);
    }
    return lines.join('\n');
  };
  const picture = new Picture(section, top + rows.length * (rowHeight + gap) + 24, (context, width, height) => {
    timeAxis(context, left, width - 8, height - 22, from, to, top);
    rows.forEach((row, index) => {
      const y = topOf(index);
      context.fillStyle = colour('--text');
      context.textAlign = 'left';
      context.fillText(timeline.recorded ? `${row.name} ${row.what}` : row.name, 0, y + rowHeight / 2 + 4);
      context.fillStyle = colour('--grid');
      context.fillRect(left, y, width - 8 - left, rowHeight);
    });
    context.save();
    context.beginPath();
    context.rect(left, 0, width - 8 - left, height);
    context.clip();
    const hues = kinds.map((kind) => colour(kKindHues[kind] || kPlainHue));
    rows.forEach((row, index) => {
      const height = rowHeight / row.count;
      for (const id of row.done) {
        if (row.end[id] < from || row.begin[id] > to) continue;
        const x = place(width, row.begin[id]), wide = place(width, row.end[id]) - x;
        context.fillStyle = hues[ops.kind[id]];
        // Leaves a seam between operations that are wide enough to be told apart.
        context.fillRect(x, topOf(index) + row.track.get(id) * height, Math.max(wide > 3 ? wide - 0.7 : wide, 0.35), height - (row.count > 1 ? 0.5 : 0));
      }
    });
    for (const [time, name] of timeline.marks) {
      const x = place(width, time);
      context.fillStyle = colour('--mark');
      context.fillRect(x, 0, 1, height - 22);
      const before = x + 4 + context.measureText(name).width > width - 8;
      context.textAlign = before ? 'right' : 'left';
      context.fillText(name, x + (before ? -4 : 4), 11);
    }
    context.restore();
  });
  const hit = (event) => {
    const index = Math.floor((event.offsetY - top) / (rowHeight + gap));
    if (index < 0 || index >= rows.length || event.offsetX < left) return null;
    const row = rows[index];
    const time = from + (event.offsetX - left) / (picture.width - 8 - left) * (to - from), near = (to - from) / (picture.width - left) * 1.5;
    const track = Math.floor((event.offsetY - topOf(index)) / (rowHeight / row.count));
    let best = null, distance = near;
    for (const id of row.done) {
      if (row.begin[id] > time + near) break;
      if (row.track.get(id) !== track) continue;
      const away = Math.max(row.begin[id] - time, time - row.end[id], 0);
      if (away <= distance) best = id, distance = away;
    }
    return best;
  };
  const look = (begin, end) => {
    const width = Math.min(Math.max(end - begin, 1e3), last);
    from = Math.min(Math.max(begin, 0), last - width);
    to = from + width;
    picture.paint();
  };
  const zoom = (factor, centre) => look(centre - (centre - from) * factor, centre + (to - centre) * factor);
  let dragged = null;
  picture.canvas.addEventListener('pointerdown', (event) => {
    if (event.button !== 0) return;  // after a menu the release may never be reported
    dragged = {x: event.clientX, from, to};
    picture.canvas.setPointerCapture(event.pointerId);
  });
  for (const end of ['pointerup', 'pointercancel']) picture.canvas.addEventListener(end, () => { dragged = null; });
  picture.canvas.addEventListener('pointermove', (event) => {
    if (dragged) {
      const moved = (event.clientX - dragged.x) / (picture.width - 8 - left) * (dragged.to - dragged.from);
      look(dragged.from - moved, dragged.to - moved);
    }
    const id = hit(event);
    showTip(event, id === null ? '' : describe(id));
  });
  picture.canvas.addEventListener('wheel', (event) => {
    if (!event.ctrlKey && !event.shiftKey) return;
    event.preventDefault();
    const time = from + (event.offsetX - left) / (picture.width - 8 - left) * (to - from);
    zoom((event.deltaY || event.deltaX) > 0 ? 1.25 : 0.8, time);
  }, {passive: false});
  for (const [name, act] of [['closer', () => zoom(0.5, (from + to) / 2)], ['further', () => zoom(2, (from + to) / 2)], ['whole step', () => look(0, last)]]) {
    element('button', name, tools).addEventListener('click', act);
    tools.append(' ');
  }
}

function curves(list) {
  const grid = element('div', null, document.body, 'two');
  for (const curve of list) {
    const section = element('section', null, grid);
    element('h2', curve.title, section);
    if (curve.note) element('p', curve.note, section);
    const finite = curve.y.filter((value) => Number.isFinite(value));
    if (!finite.length) { element('p', 'No value is finite.', section); continue; }
    let low = Math.min(...(curve.from_zero ? [0] : []), ...[curve.planned ?? Infinity], finite.reduce((a, b) => Math.min(a, b)));
    let high = Math.max(...[curve.planned ?? -Infinity], finite.reduce((a, b) => Math.max(a, b)));
    if (high === low) high += Math.abs(high) * 0.1 || 1, low -= curve.from_zero ? 0 : Math.abs(low) * 0.1;
    high += (high - low) * 0.05;
    const left = 64, top = 8, bottom = 24, first = curve.x[0], last = curve.x[curve.x.length - 1];
    const xOf = (width, step) => left + (last > first ? (step - first) / (last - first) : 0.5) * (width - 12 - left);
    const picture = new Picture(section, 190, (context, width, height) => {
      const base = height - bottom, y = (value) => base - (value - low) / (high - low) * (base - top);
      context.textAlign = 'right';
      for (const tick of ticks(low, high, 4)) {
        context.fillStyle = colour('--grid');
        context.fillRect(left, Math.round(y(tick)), width - 12 - left, 1);
        context.fillStyle = colour('--quiet');
        context.fillText(Number(tick.toPrecision(4)).toLocaleString('en'), left - 6, y(tick) + 4);
      }
      context.textAlign = 'center';
      for (const tick of ticks(first, last, Math.max(2, width / 120))) {
        if (!Number.isInteger(tick)) continue;
        context.fillStyle = colour('--quiet');
        context.fillText('step ' + tick, Math.min(Math.max(xOf(width, tick), left + 20), width - 30), base + 15);
      }
      if (curve.planned != null) {
        context.strokeStyle = colour('--text');
        context.setLineDash([5, 4]);
        context.beginPath();
        context.moveTo(left, y(curve.planned));
        context.lineTo(width - 12, y(curve.planned));
        context.stroke();
        context.setLineDash([]);
      }
      context.strokeStyle = context.fillStyle = colour('--c0');
      context.lineWidth = 1.6;
      context.beginPath();
      let open = false;
      curve.y.forEach((value, i) => {
        if (!Number.isFinite(value)) { open = false; return; }
        const x = xOf(width, curve.x[i]);
        if (open) context.lineTo(x, y(value)); else context.moveTo(x, y(value));
        open = true;
        if (curve.y.length <= 40) context.fillRect(x - 2, y(value) - 2, 4, 4);
      });
      context.stroke();
    });
    picture.canvas.addEventListener('pointermove', (event) => {
      let best = 0;
      curve.x.forEach((step, i) => { if (Math.abs(xOf(picture.width, step) - event.offsetX) < Math.abs(xOf(picture.width, curve.x[best]) - event.offsetX)) best = i; });
      const value = curve.y[best];
      showTip(event, `step ${curve.x[best]}: ${Number.isFinite(value) ? Number(value.toPrecision(6)).toLocaleString('en', {maximumSignificantDigits: 6}) : 'not finite'}${curve.unit ? ' ' + curve.unit : ''}`);
    });
  }
}

// One bar for each row; `mark` is a line beside it. A row without a value says why in words.
function bars({title, note, list}) {
  const section = element('section', null, document.body);
  element('h2', title, section);
  if (note) element('p', note, section);
  const rowHeight = 26, left = 110, right = 90, most = Math.max(...list.map(({value, mark}) => Math.max(value || 0, mark || 0)), 1e-30);
  const picture = new Picture(section, list.length * rowHeight, (context, width) => {
    const place = (value) => left + value / most * (width - left - right);
    context.textAlign = 'left';
    list.forEach(({name, value, mark, text}, row) => {
      const y = row * rowHeight;
      context.fillStyle = colour('--text');
      context.fillText(name, 0, y + 17, left - 8);
      context.fillStyle = colour('--c0');
      if (value != null) context.fillRect(left, y + 4, place(value) - left, rowHeight - 8);
      context.fillStyle = colour('--mark');
      if (mark != null) context.fillRect(place(mark), y + 2, 1.5, rowHeight - 4);
      context.fillStyle = colour('--quiet');
      context.fillText(text, place(Math.max(value || 0, mark || 0)) + 6, y + 17);
    });
  });
  picture.canvas.setAttribute('role', 'img');
  picture.canvas.setAttribute('aria-label', title);
  picture.canvas.addEventListener('pointermove', (event) => {
    const bar = list[Math.floor(event.offsetY / rowHeight)];
    showTip(event, bar ? `${bar.name}: ${bar.text}` : '');
  });
}

element('h1', data.title, document.body);
element('p', data.subtitle, document.body);
document.title = data.title;
if (data.tiles) tiles(data.tiles);
for (const made of data.tables_before || []) table(made);
if (data.bars) bars(data.bars);
if (data.curves) curves(data.curves);
if (data.tiers) tierPictures(data.tiers);
if (data.timeline) lanes(data.timeline);
for (const made of data.tables || []) table(made);
if (data.command) {
  const section = element('section', null, document.body);
  element('h2', 'Command', section);
  element('pre', data.command, section);
}
