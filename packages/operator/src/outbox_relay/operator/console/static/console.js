// The page without the server: keys, copying, and keeping what its reader has opened or selected.
'use strict';

const live = document.getElementById('live');
const connection = document.getElementById('connection');
let source = null;
let hiddenTimer = 0;

// Browsers open six connections to one address, for all tabs together: a hidden tab gives its own back.
const HIDDEN_FOR_MS = 30000;

htmx.createEventSource = (url) => {
  source = new EventSource(url);
  return source;
};

let stream = 'connecting';
let heardAt = '';

// The stream may be open while the server cannot read what it shows; without a stream, nothing is current.
function show() {
  const headline = document.querySelector('.headline [data-connection]').dataset, stale = headline.connection;
  const [state, text] = stream === 'live' ? [stale ? 'stale' : 'live', stale || 'live']
    : stream === 'lost' ? ['lost', `reconnecting${heardAt && `, last heard at ${heardAt}`}`] : ['connecting', 'connecting'];
  connection.dataset.state = state;
  document.getElementById('connection-text').textContent = text;
  document.getElementById('main').classList.toggle('lost', state === 'lost');
  // What the headline says may be wrong by now.
  const away = document.getElementById('away'), since = heardAt && ` What is below was known at ${heardAt}.`;
  away.hidden = state !== 'lost';
  away.querySelector('p span:last-child').textContent = `The console does not answer.${since}`;
  document.querySelector('.headline[sse-swap]').hidden = state === 'lost';
  const timeline = document.getElementById('timeline');
  if (timeline) timeline.classList.toggle('stale', headline.timeline === 'stale');
}

function become(state) {
  if (state === 'lost' && stream === 'live') heardAt = new Date().toISOString().slice(11, 19);
  stream = state;
  show();
}

document.body.addEventListener('htmx:sseOpen', () => become('live'));
document.body.addEventListener('htmx:sseError', () => become('lost'));

function pause() {
  if (!source) return;
  source.close();
  become('lost');
}

document.addEventListener('visibilitychange', () => {
  clearTimeout(hiddenTimer);
  if (document.hidden) {
    hiddenTimer = setTimeout(pause, HIDDEN_FOR_MS);
  } else if (source && source.readyState === EventSource.CLOSED) {
    // The extension of htmx makes a new one after an error of one that is closed.
    source.dispatchEvent(new Event('error'));
  }
});

// A section is not replaced while some of it is selected.
const heldBack = new Map();

function selectedIn(element) {
  const selection = document.getSelection();
  return !selection.isCollapsed && selection.containsNode(element, true);
}

document.addEventListener('selectionchange', () => {
  for (const [section, html] of heldBack) {
    if (selectedIn(section)) continue;
    heldBack.delete(section);
    replace(section, html);
  }
});

live.addEventListener('htmx:sseBeforeMessage', (event) => {
  // Here, as it has to keep what its reader has opened and focused.
  event.preventDefault();
  if (selectedIn(event.target)) heldBack.set(event.target, event.detail.data);
  else replace(event.target, event.detail.data);
});

function replace(section, html) {
  heldBack.delete(section);
  const open = new Set();
  for (const each of section.querySelectorAll('details[data-keep]')) if (each.open) open.add(each.dataset.keep);
  const checked = new Map();
  for (const each of section.querySelectorAll('input[type=checkbox]')) checked.set(each.value, each.checked);
  const active = document.activeElement;
  const place = section !== active && section.contains(active) ? placeOf(section, active) : null;
  htmx.swap(section, html, { swapStyle: 'innerHTML' });
  for (const each of section.querySelectorAll('details[data-keep]')) each.open = open.has(each.dataset.keep);
  for (const each of section.querySelectorAll('input[type=checkbox]')) {
    if (checked.has(each.value)) each.checked = checked.get(each.value);
  }
  if (section.classList.contains('headline')) show();
  if (place !== null) refocus(section, place);
}

const FOCUSABLE = 'a[href], button, summary, input';

function placeOf(section, element) {
  const group = element.closest('details[data-keep]');
  const within = group || section;
  return { keep: group && group.dataset.keep, index: [...within.querySelectorAll(FOCUSABLE)].indexOf(element) };
}

function refocus(section, place) {
  let within = section;
  if (place.keep !== null) {
    within = [...section.querySelectorAll('details[data-keep]')].find((each) => each.dataset.keep === place.keep);
  }
  const element = within && within.querySelectorAll(FOCUSABLE)[place.index];
  if (element) element.focus({ preventScroll: true });
}

document.addEventListener('keydown', (event) => {
  const search = document.getElementById('key');
  if (!search) return;
  const typing = event.target.closest('input, textarea, select, [contenteditable]');
  if (event.key === '/' && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    search.focus();
    search.select();
  } else if (event.key === 'Escape' && event.target === search) {
    search.blur();
  }
});

document.addEventListener('click', async (event) => {
  const button = event.target.closest('button[data-copy]');
  if (!button) return;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = 'Copied';
  } catch {
    // Without the right to the clipboard the command is selected instead.
    document.getSelection().selectAllChildren(button.parentElement.querySelector('code'));
    button.textContent = 'Selected';
  }
  setTimeout(() => { button.textContent = 'Copy'; }, 1500);
});
